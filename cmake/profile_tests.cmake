# Tests of `cenote profile` with a program: under a stand-in for ncu, and beside the test NVML.

add_test(NAME profile COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/profile/test_profile.py
  $<TARGET_FILE:cenote> ${CENOTE_TEST_DRIVER_DIR})
set_tests_properties(profile PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS run)

# The programs that tests/gpu/check_profile.py profiles, for the machine with a GPU that a portable build
# travels to.
if(CENOTE_STATIC_DEPS AND CENOTE_NVCC)
  set(profile_folder ${CMAKE_BINARY_DIR}/tests/gpu/profile)
  file(MAKE_DIRECTORY ${profile_folder})
  file(GLOB profile_programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/profile/*.cu)
  foreach(source ${profile_programs})
    get_filename_component(name ${source} NAME_WE)
    add_custom_command(
      OUTPUT ${profile_folder}/${name}
      COMMAND ${CENOTE_NVCC} -O3 -std=c++17 -Werror all-warnings -lineinfo --cudart static
              -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=sm_90
              -o ${profile_folder}/${name} ${source}
      DEPENDS ${source} ${CMAKE_SOURCE_DIR}/tests/gpu/profile/common.cuh
              ${CMAKE_SOURCE_DIR}/tests/gpu/common.cuh
      COMMENT "Compiling ${name}"
      VERBATIM)
    list(APPEND profile_outputs ${profile_folder}/${name})
  endforeach()
  add_custom_target(gpu_profile_programs ALL DEPENDS ${profile_outputs})
endif()
