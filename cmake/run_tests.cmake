# Tests of `cenote run`: a program that is linked with the driver's names, and the test driver that
# serves it. A sanitized interposer needs its runtime in the program that it is loaded into.

if(NOT TARGET cenote_preload OR CENOTE_SANITIZE)
  return()
endif()
add_library(run_stub SHARED tests/run/stub.c)
target_include_directories(run_stub PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(run_stub PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/run_stub)
add_executable(run_program tests/run/program.c)
target_include_directories(run_program PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(run_program PRIVATE _GNU_SOURCE)
target_compile_options(run_program PRIVATE -g)
target_link_libraries(run_program PRIVATE run_stub Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(run_program PROPERTIES OUTPUT_NAME program SKIP_BUILD_RPATH ON
                                             RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/run_program)
add_test(NAME run COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/run/test_run.py
  $<TARGET_FILE:cenote> ${CENOTE_TEST_DRIVER_DIR} $<TARGET_FILE:run_program>)
set_tests_properties(run PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS run
  ENVIRONMENT "CENOTE_TEST_LIBDW=$<BOOL:${CENOTE_LIBDW_INCLUDE}>")
add_dependencies(run_program test_driver driver_nvml)
