# What a build may be asked for, beside CMake's own settings; CMakePresets.json names the sets in use.

set(CENOTE_SANITIZE "" CACHE STRING "sanitizers, as for -fsanitize: \"address,undefined\" or \"thread\"")
option(CENOTE_DEBUG "check the library's own invariants often (CENI_DEBUG=1)" OFF)
option(CENOTE_STATIC "a `cenote` that needs no shared library: the commands that need no GPU" OFF)
option(CENOTE_FUZZ "build tests/fuzz/fuzz_*.c with clang's libFuzzer" OFF)
option(CENOTE_TESTS "build the tests (needs cmocka) and examples" ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "kind of build" FORCE)
endif()

if(CENOTE_DEBUG)
  add_compile_definitions(CENI_DEBUG=1)
endif()

if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # whether it warns depends on the level of optimisation
  add_compile_options(-Wno-format-truncation)
endif()

set(sanitize "${CENOTE_SANITIZE}")
if(CENOTE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CENOTE_FUZZ needs clang (CC=clang): libFuzzer is part of it")
  endif()
  set(sanitize "address,undefined")
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(sanitize)
  add_compile_options(-fsanitize=${sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitize})
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # its guesses about flow go wrong in instrumented code
    add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow)
  endif()
endif()

if(CENOTE_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(ZLIB_USE_STATIC_LIBS ON)
endif()
