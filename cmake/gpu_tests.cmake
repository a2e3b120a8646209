# What tests/gpu/hopper.cu becomes, for the machine with a GPU that a portable build travels to.

if(CENOTE_STATIC_DEPS AND CENOTE_NVCC)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests/gpu)
  set(hopper ${CMAKE_BINARY_DIR}/tests/gpu/hopper)
  add_custom_command(
    OUTPUT ${hopper}
    COMMAND ${CENOTE_NVCC} -O3 -std=c++17 -Werror all-warnings --cudart static
            -gencode arch=compute_90a,code=sm_90a -I ${CMAKE_SOURCE_DIR}/src -I ${CMAKE_SOURCE_DIR}/include
            -MD -MF ${hopper}.d -MT ${hopper} -o ${hopper} ${CMAKE_SOURCE_DIR}/tests/gpu/hopper.cu
    DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/hopper.cu
    DEPFILE ${hopper}.d
    COMMENT "Compiling hopper"
    VERBATIM)
  add_custom_target(gpu_hopper ALL DEPENDS ${hopper})
endif()
