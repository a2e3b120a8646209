# bench/bench_*.c, bench/driver/bench_*.c and bench/peers/peer_*.c, into bench/ of the build. Each gets what benchmarks share
# and the peers that can be linked. The library is linked statically: programs that travel alone.

add_library(bench_common STATIC bench/bench.c bench/peers/async.c)
target_include_directories(bench_common PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_definitions(bench_common PRIVATE _GNU_SOURCE)
target_compile_options(bench_common PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(bench_common PUBLIC ${CMAKE_DL_LIBS})

file(GLOB benches CONFIGURE_DEPENDS bench/bench_*.c bench/driver/bench_*.c bench/peers/peer_*.c)
foreach(source ${benches})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE bench_common cenote_static m)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()
