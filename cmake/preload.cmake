# libcenote_preload.so: the interposer behind `cenote run`. It carries the parts of cenote that it
# uses and shows none of them: only dlsym, under the versions that programs ask for, and the driver's
# functions that it stands before. Third-party libraries come in from their archives: a shared one
# would stand before a program's own.

if(CENOTE_STATIC)
  return()
endif()
find_library(CENOTE_ZLIB_ARCHIVE libz.a)
find_library(CENOTE_JANSSON_ARCHIVE libjansson.a)
if(CENOTE_ZLIB_ARCHIVE AND CENOTE_JANSSON_ARCHIVE)
  set(archives ${CENOTE_ZLIB_ARCHIVE} ${CENOTE_JANSSON_ARCHIVE})
else()
  set(archives ZLIB::ZLIB PkgConfig::JANSSON)
endif()

file(GLOB PRELOAD_SOURCES CONFIGURE_DEPENDS preload/*.c)
add_library(cenote_preload SHARED ${PRELOAD_SOURCES})
set(map ${CMAKE_SOURCE_DIR}/preload/${CMAKE_SYSTEM_PROCESSOR}.map)
target_include_directories(cenote_preload PRIVATE ${CMAKE_SOURCE_DIR} include src)
target_compile_definitions(cenote_preload PRIVATE _GNU_SOURCE)
# The archive as a file: as a target it would bring the shared libraries along.
target_link_libraries(cenote_preload PRIVATE $<TARGET_FILE:cenote_static> ${archives} Threads::Threads
  ${CMAKE_DL_LIBS} m)
target_link_options(cenote_preload PRIVATE -Wl,--version-script=${map} -Wl,--exclude-libs,ALL
  -Wl,--as-needed -Wl,-z,nodelete -Wl,--gc-sections)
set_target_properties(cenote_preload PROPERTIES LINK_DEPENDS "${map};$<TARGET_FILE:cenote_static>")
add_dependencies(cenote_preload cenote_static)
add_dependencies(cenote cenote_preload)
