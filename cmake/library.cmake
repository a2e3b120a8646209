# libcenote.so, beside the static library that CMakeLists.txt makes of the same objects.
#
# Only what CEN_API marks leaves the shared library: symbols are hidden by default, and the version
# script keeps in what a linked-in static library would show. Before 1.0 the interface may change
# with each minor version, so that is part of the soname.

set_target_properties(cenote_static PROPERTIES OUTPUT_NAME cenote)

if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(CENOTE_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
else()
  set(CENOTE_SOVERSION ${PROJECT_VERSION_MAJOR})
endif()

if(NOT CENOTE_STATIC)
  set(map ${CMAKE_SOURCE_DIR}/cmake/cenote.map)
  add_library(cenote_shared SHARED)
  target_link_libraries(cenote_shared PRIVATE cenote_objects)
  target_include_directories(cenote_shared INTERFACE ${CMAKE_SOURCE_DIR}/include)
  target_link_options(cenote_shared PRIVATE -Wl,--version-script=${map})
  set_target_properties(cenote_shared PROPERTIES
    OUTPUT_NAME cenote VERSION ${PROJECT_VERSION} SOVERSION ${CENOTE_SOVERSION} LINK_DEPENDS ${map})
endif()

# The static binary must not dlopen: the C library's loader works in it only beside exactly the same
# C library. cli/static/dl.c answers in its place, so that CUDA is simply not there.
if(CENOTE_STATIC)
  target_sources(cenote PRIVATE cli/static/dl.c)
  target_link_options(cenote PRIVATE -static)
endif()
