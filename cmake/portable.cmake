# CENOTE_STATIC_DEPS: programs that run where our libraries are not installed, such as a GPU machine.
# Libraries that come as archives fit for a shared library are linked from them; cmocka and jansson, which do
# not, are put beside the programs that need them. Debug information stays here: what travels should be small.

option(CENOTE_STATIC_DEPS "link third-party libraries statically where they come as archives" OFF)
if(CENOTE_STATIC_DEPS)
  set(ZLIB_USE_STATIC_LIBS ON)
  list(PREPEND CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
  set(CMAKE_BUILD_RPATH "\$ORIGIN;\$ORIGIN/..")
  add_compile_options(-g0)
endif()

# Copies a shared library that was found into the build's root, under the name that programs ask for.
function(cenote_bring library)
  if(CENOTE_STATIC_DEPS AND NOT library MATCHES "\\.a$")
    file(REAL_PATH ${library} real)
    string(REGEX MATCH "[^/]+\\.so\\.[0-9]+" soname ${real})
    configure_file(${real} ${CMAKE_BINARY_DIR}/${soname} COPYONLY)
  endif()
endfunction()
