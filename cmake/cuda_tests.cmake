# What the tests of the CUDA backend need: the toolkit's headers, where there are any, to check our
# declarations of the driver against, and a stand-in for the driver.

find_path(CENOTE_CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
          PATH_SUFFIXES include)
if(CENOTE_CUDA_INCLUDE)
  target_include_directories(test_cuda_abi SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
  target_include_directories(test_preload_abi SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
endif()

add_library(fake_cuda SHARED tests/unit/dev/fake_cuda.c)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                                           LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_cuda)
target_include_directories(fake_cuda PRIVATE src)
target_compile_definitions(fake_cuda PRIVATE _GNU_SOURCE)
add_dependencies(test_cuda_load fake_cuda)
set_tests_properties(test_cuda_load PROPERTIES ENVIRONMENT
                     "CENOTE_FAKE_CUDA=1;LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/fake_cuda")

# FP8 beside the toolkit's own conversions, which are C++.
include(CheckLanguage)
check_language(CXX)
if(CENOTE_CUDA_INCLUDE AND EXISTS ${CENOTE_CUDA_INCLUDE}/cuda_fp8.h AND CMAKE_CXX_COMPILER)
  enable_language(CXX)
  add_executable(test_codec_cuda_fp8 tests/unit/codec/cuda_fp8.cpp)
  target_include_directories(test_codec_cuda_fp8 SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
  target_link_libraries(test_codec_cuda_fp8 PRIVATE cenote_static)
  add_test(NAME test_codec_cuda_fp8 COMMAND test_codec_cuda_fp8)
  set_tests_properties(test_codec_cuda_fp8 PROPERTIES LABELS codec TIMEOUT 600)
endif()
