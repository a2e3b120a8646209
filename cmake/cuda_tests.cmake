# What the tests of the CUDA backend need: the toolkit's headers, where there are any, to check our
# declarations of the driver against.

find_path(CENOTE_CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
          PATH_SUFFIXES include)
if(CENOTE_CUDA_INCLUDE)
  target_include_directories(test_cuda_abi SYSTEM PRIVATE ${CENOTE_CUDA_INCLUDE})
endif()

