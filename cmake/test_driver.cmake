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

# Programs of the driver API. One source for each way to get at the functions.
set(driver_path "LD_LIBRARY_PATH=${CENOTE_TEST_DRIVER_DIR}")
if(CENOTE_SANITIZE STREQUAL "thread") # a driver's threads live until the process ends
  list(APPEND driver_path TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0)
endif()
set(driver_environment ${driver_path} CENOTE_HOST_CAPACITY=1073741824)

function(cenote_driver_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES
    LABELS driver SKIP_RETURN_CODE 77 TIMEOUT 600 ENVIRONMENT "${driver_environment}")
endfunction()

function(cenote_driver_program name source)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(${name} test_driver driver_nvml)
endfunction()

cenote_driver_program(test_driver_calls ${driver_folder}/test_driver_calls.c)
cenote_driver_test(driver_calls_dlsym test_driver_calls dlsym)
cenote_driver_test(driver_calls_proc test_driver_calls proc)
cenote_driver_program(test_driver_calls_linked ${driver_folder}/test_driver_calls.c)
target_compile_definitions(test_driver_calls_linked PRIVATE CALLS_LINKED)
target_link_libraries(test_driver_calls_linked PRIVATE test_driver)
cenote_driver_test(driver_calls_linked test_driver_calls_linked)
cenote_driver_program(test_driver_holders ${driver_folder}/test_driver_holders.c)
cenote_driver_test(driver_holders test_driver_holders)
cenote_driver_program(test_driver_abi ${driver_folder}/test_driver_abi.c)
if(CENOTE_CUDA_INCLUDE)
  target_include_directories(test_driver_abi SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
endif()
cenote_driver_test(driver_abi test_driver_abi)

# What runs in the tests of the interposer, in tests/driver/programs of the build: plain programs of the
# driver API, optimised a little and with symbols as users' are. Here they run by themselves.
file(GLOB driver_programs CONFIGURE_DEPENDS ${driver_folder}/programs/*.c)
foreach(source ${driver_programs})
  get_filename_component(name ${source} NAME_WE)
  add_executable(program_${name} ${source})
  target_compile_definitions(program_${name} PRIVATE _GNU_SOURCE)
  target_compile_options(program_${name} PRIVATE -g -O1)
  target_link_libraries(program_${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  file(STRINGS ${source} looks_up REGEX "^#define LOOK_UP")
  if(NOT looks_up)
    target_link_libraries(program_${name} PRIVATE test_driver)
  endif()
  set_target_properties(program_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CENOTE_TEST_DRIVER_DIR}/programs)
  add_dependencies(program_${name} test_driver)
  cenote_driver_test(driver_program_${name} program_${name})
endforeach()
set_tests_properties(driver_program_oom PROPERTIES PASS_REGULAR_EXPRESSION "^refused with 2 after 738197504 bytes")
if(NOT CENOTE_SANITIZE) # whose runtime an interpreter does not have
  foreach(name keeps_losses loop_free)
    cenote_driver_test(driver_program_${name} Python3::Interpreter ${driver_folder}/programs/${name}.py)
  endforeach()
endif()

# The probe of GPUs, with NVML: rows of the devices, with what only a driver tells.
if(NOT CENOTE_CUDA_KERNELS STREQUAL "OFF" AND CENOTE_NVCC)
  cenote_driver_test(driver_probe cenote probe --quick --no-keep --json)
  set_tests_properties(driver_probe PROPERTIES PASS_REGULAR_EXPRESSION
    "cenote test device 0.*\"HBM\",\"capacity_bytes\":1073741824,.*\"peak_gbps\":256.0,\"picojoules.*\"peer\",\"latency_ns")
endif()

# The conformance suite once more, on the CUDA backend over the test driver. Where there is no nvcc, an
# image that only the test driver takes stands in for the kernels.
file(GLOB conformance CONFIGURE_DEPENDS tests/conformance/test_*.c)
foreach(source ${conformance})
  get_filename_component(name ${source} NAME_WE)
  if(CENOTE_CUDA_KERNELS STREQUAL "OFF" OR NOT CENOTE_NVCC)
    target_sources(${name} PRIVATE tests/conformance/image.c)
  endif()
  add_test(NAME driver_${name} COMMAND ${name})
  set_tests_properties(driver_${name} PROPERTIES
    LABELS driver SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${driver_path};CENOTE_TEST_DEVICE=cuda;CENOTE_REQUIRE_GPU=1")
endforeach()

# So the tests of sharing, between processes.
file(GLOB sharing CONFIGURE_DEPENDS tests/integration/test_share*.c)
foreach(source ${sharing})
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME driver_${name} COMMAND ${name})
  set_tests_properties(driver_${name} PROPERTIES
    LABELS driver SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${driver_environment};CENOTE_TEST_DEVICE=cuda;CENOTE_REQUIRE_GPU=1;CENOTE_TEST_STRIDE=12")
endforeach()
if(CENOTE_SANITIZE)
  set_tests_properties(test_share_crash PROPERTIES ENVIRONMENT CENOTE_TEST_STRIDE=4)
endif()
