# The model of the broker's protocol: every state of it, and mistakes that it must find. It does not
# depend on how the library is built.

if(NOT CENOTE_SANITIZE)
  add_test(NAME broker_model COMMAND ${CMAKE_SOURCE_DIR}/tests/model/run.sh ${CMAKE_BINARY_DIR}/broker_model)
  set_tests_properties(broker_model PROPERTIES LABELS model SKIP_RETURN_CODE 77 TIMEOUT 1800)
endif()
