# Checks of the tree itself: layers before anything is compiled, the rest as tests.

# Of the interpreters that are here, one with what tests compare with.
if(CENOTE_TESTS AND NOT DEFINED CACHE{Python3_EXECUTABLE})
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/test_python.sh OUTPUT_VARIABLE Python3_EXECUTABLE
    OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

# The library is compiled only once its includes are in order.
file(GLOB_RECURSE checked CONFIGURE_DEPENDS include/*.h src/*.[ch] src/*.cu cli/*.[ch] preload/*.[ch]
  tests/*.[ch] bench/*.[ch] examples/*.[ch])
set(stamp ${CMAKE_BINARY_DIR}/layers.stamp)
add_custom_command(OUTPUT ${stamp}
  COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/check_layers.py ${CMAKE_SOURCE_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
  DEPENDS ${checked} ${CMAKE_SOURCE_DIR}/tools/check_layers.py
  COMMENT "Checking who includes whom")
add_custom_target(layers DEPENDS ${stamp})
add_dependencies(cenote_objects layers)

# cenote_check(NAME COMMAND...): a test of label "checks", run in the source tree.
function(cenote_check name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS checks SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()

if(CENOTE_TESTS)
  cenote_check(check_layers ${Python3_EXECUTABLE} tools/check_layers.py)
  cenote_check(check_layers_itself ${Python3_EXECUTABLE} tests/checks/test_check_layers.py)
  cenote_check(check_benchmarks ${Python3_EXECUTABLE} tools/make_benchmarks.py --check)
  cenote_check(check_hierarchy ${Python3_EXECUTABLE} tools/make_hierarchy.py --check)
  cenote_check(check_readme ${Python3_EXECUTABLE} tools/update_readme.py --check $<TARGET_FILE:cenote>)
  cenote_check(check_benchmarks_itself ${Python3_EXECUTABLE} tests/checks/test_make_benchmarks.py)
  cenote_check(check_workload_figures ${Python3_EXECUTABLE} tests/checks/test_workload_figures.py)
  # A sanitized library needs its runtime in the program that loads it: only plain builds are installed.
  if(NOT CENOTE_SANITIZE)
    cenote_check(check_exports tests/checks/exports.sh ${CMAKE_BINARY_DIR})
    cenote_check(check_install tests/checks/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER})
  endif()
endif()
