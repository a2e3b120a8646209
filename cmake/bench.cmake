# bench/bench_*.c: against the public headers and the shared library, as they measure what a user gets.
# bench/driver/bench_*.c look below the public headers; bench/peers/peer_*.c run a peer alone. All go
# into bench/ of the build. bench_common is what they share, and the peers that can be linked. What
# bench/gpu/ has is run by hand, on a GPU.

add_library(bench_common STATIC bench/bench.c bench/month_svg.c bench/peers/async.c
  bench/peers/handles.c)
target_include_directories(bench_common PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_definitions(bench_common PRIVATE _GNU_SOURCE)
target_link_libraries(bench_common PUBLIC ${CMAKE_DL_LIBS})

file(GLOB benches CONFIGURE_DEPENDS bench/bench_*.c bench/driver/bench_*.c bench/peers/peer_*.c)
foreach(source ${benches})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  if(source MATCHES "/driver/")
    target_link_libraries(${name} PRIVATE bench_common ${CENOTE_SHARED_IMAGE} cenote_static)
  else()
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_link_libraries(${name} PRIVATE bench_common cenote_shared m)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()

# The same loop over the CUDA runtime, as a library and as nvcc links it: into the program.
find_library(CENOTE_CUDART_STATIC cudart_static HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
  PATH_SUFFIXES lib64 lib)
add_executable(malloc_loop bench/gpu/malloc_loop.c)
set(malloc_loops malloc_loop)
if(CENOTE_CUDART_STATIC)
  add_executable(malloc_loop_static bench/gpu/malloc_loop.c)
  target_compile_definitions(malloc_loop_static PRIVATE MALLOC_LOOP_STATIC=1)
  target_link_libraries(malloc_loop_static PRIVATE ${CENOTE_CUDART_STATIC} Threads::Threads rt)
  list(APPEND malloc_loops malloc_loop_static)
endif()
foreach(name ${malloc_loops})
  target_link_libraries(${name} PRIVATE bench_common)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()

# What bench/bench_stacks.py loads into Python.
add_library(stacks_probe MODULE bench/stacks/probe.c)
target_link_libraries(stacks_probe PRIVATE bench_common cenote_shared)
set_target_properties(stacks_probe PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
