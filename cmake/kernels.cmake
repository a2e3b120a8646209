# CUDA kernels: src/kernels/*.cu become one fatbin (machine code for sm_80 and sm_90a, PTX for what
# comes after), which image.c holds as bytes. Without nvcc the library is built without them.

set(CENOTE_CUDA_KERNELS AUTO CACHE STRING "build CUDA kernels: AUTO (when nvcc is found), ON, OFF")
set_property(CACHE CENOTE_CUDA_KERNELS PROPERTY STRINGS AUTO ON OFF)

if(NOT CENOTE_CUDA_KERNELS STREQUAL "OFF")
  find_program(CENOTE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()
if(CENOTE_CUDA_KERNELS STREQUAL "OFF" OR NOT CENOTE_NVCC)
  if(CENOTE_CUDA_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "CENOTE_CUDA_KERNELS is ON, and nvcc was not found; set CUDA_HOME or CENOTE_NVCC")
  endif()
  message(STATUS "CUDA kernels: none (CENOTE_CUDA_KERNELS=${CENOTE_CUDA_KERNELS}); launches on a GPU "
                 "will return CEN_ERR_UNSUPPORTED")
  return()
endif()
message(STATUS "CUDA kernels: with ${CENOTE_NVCC}")

file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cu)
set(kernel_unit ${CMAKE_BINARY_DIR}/kernels/all.cu)
set(kernel_fatbin ${CMAKE_BINARY_DIR}/kernels/all.fatbin)
set(kernel_includes "")
foreach(source ${kernel_sources})
  string(APPEND kernel_includes "#include \"${source}\"\n")
endforeach()
file(CONFIGURE OUTPUT ${kernel_unit} CONTENT "${kernel_includes}")

# Packed, the image is a seventh of its size; the driver unpacks it. nvcc has the option from 12.8 on.
set(kernel_packing "")
execute_process(COMMAND ${CENOTE_NVCC} --version OUTPUT_VARIABLE nvcc_version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(nvcc_version MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
  set(kernel_packing --compress-mode=size)
endif()

add_custom_command(
  OUTPUT ${kernel_fatbin}
  COMMAND ${CENOTE_NVCC} -fatbin -std=c++17 -O3 --threads 2 -Werror all-warnings ${kernel_packing}
          -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a
          -I ${CMAKE_SOURCE_DIR}/src -I ${CMAKE_SOURCE_DIR}/include
          -MD -MF ${kernel_fatbin}.d -MT ${kernel_fatbin}
          -o ${kernel_fatbin} ${kernel_unit}
  DEPENDS ${kernel_sources} ${kernel_unit}
  DEPFILE ${kernel_fatbin}.d
  COMMENT "Compiling CUDA kernels"
  VERBATIM)
set_source_files_properties(
  ${CMAKE_SOURCE_DIR}/src/kernels/image.c PROPERTIES OBJECT_DEPENDS ${kernel_fatbin} COMPILE_DEFINITIONS
                                                     "CENI_KERNELS_FILE=\"${kernel_fatbin}\"")

# Tests and benches share one copy of the image, which would be most of each.
if(CENOTE_TESTS)
  add_library(cenote_image SHARED src/kernels/image.c)
  target_include_directories(cenote_image PRIVATE include src)
  set_target_properties(cenote_image PROPERTIES C_VISIBILITY_PRESET default)
  # Before the static library, whose own copy then stays out; some linkers would leave it out as not
  # needed so far.
  set(CENOTE_SHARED_IMAGE -Wl,--push-state,--no-as-needed cenote_image -Wl,--pop-state)
endif()
