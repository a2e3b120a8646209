# What the tests of the ledger's readers need: two stand-ins for NVML, a new and an old one, and the
# toolkit's header, where there is one, to check our declarations against.

foreach(variant fake_nvml fake_nvml_old)
  add_library(${variant} SHARED tests/unit/ledger/fake_nvml.c)
  set_target_properties(${variant} PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
                                              LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${variant})
endforeach()
target_compile_definitions(fake_nvml_old PRIVATE FAKE_NVML_OLD=1)

foreach(test test_nvml test_holders)
  add_dependencies(${test} fake_nvml fake_nvml_old)
  target_compile_definitions(${test} PRIVATE FAKE_NVML_DIR="${CMAKE_BINARY_DIR}/fake_nvml")
endforeach()
add_dependencies(test_holders_text cenote fake_nvml)
target_compile_definitions(test_holders_text PRIVATE CENOTE="$<TARGET_FILE:cenote>"
                           FAKE_NVML_DIR="${CMAKE_BINARY_DIR}/fake_nvml")
if(CENOTE_CUDA_INCLUDE)
  target_include_directories(test_nvml_abi SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
endif()
