# examples/NAME.c: programs against the public headers and the shared library. They also run as tests,
# on the host backend unless they choose another.

file(GLOB examples CONFIGURE_DEPENDS examples/*.c)
foreach(source ${examples})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  target_link_libraries(example_${name} PRIVATE cenote_shared m)
  set_target_properties(example_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
  # Those that take more than one process have a script.
  set(script ${CMAKE_SOURCE_DIR}/tests/checks/example_${name}.sh)
  if(EXISTS ${script})
    add_test(NAME example_${name} COMMAND ${script} $<TARGET_FILE:cenote> $<TARGET_FILE:example_${name}>)
  else()
    add_test(NAME example_${name} COMMAND example_${name})
  endif()
  set_tests_properties(example_${name} PROPERTIES LABELS examples SKIP_RETURN_CODE 77 TIMEOUT 60)
endforeach()
