# A test libcuda.so.1 and libnvidia-ml.so.1 (tests/driver/README.md), under the names and in the folder
# that LD_LIBRARY_PATH can point at. They bind to their own symbols, as the real ones do, so that what is
# preloaded sees the program's calls and not the driver's own.

set(CENOTE_TEST_DRIVER_DIR ${CMAKE_BINARY_DIR}/tests/driver)
set(driver_folder ${CMAKE_SOURCE_DIR}/tests/driver)

function(cenote_test_driver target name)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic -Wl,--version-script=${driver_folder}/${target}.map)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CENOTE_TEST_DRIVER_DIR}
    LINK_DEPENDS ${driver_folder}/${target}.map)
endfunction()

file(GLOB driver_sources CONFIGURE_DEPENDS ${driver_folder}/*.c)
list(FILTER driver_sources EXCLUDE REGEX "/(test_[^/]*|nvml)\\.c$")
cenote_test_driver(test_driver cuda ${driver_sources})
target_link_libraries(test_driver PRIVATE cenote_static)
cenote_test_driver(driver_nvml nvidia-ml ${driver_folder}/nvml.c ${driver_folder}/state.c)
target_compile_definitions(driver_nvml PRIVATE _GNU_SOURCE)
