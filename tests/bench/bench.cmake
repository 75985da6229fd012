# Programs that measure; built with the tests, run by hand. Ratios inside one process: absolute times mean nothing on shared machines.
add_executable(path_bench bench/path_bench.cpp)
add_executable(compile_bench bench/compile_bench.cpp bench/compile_common.cpp bench/compile_throughput.cpp bench/compile_single.cpp)
add_executable(pch_bench bench/pch_bench.cpp)
foreach(program path_bench compile_bench pch_bench)
  target_compile_definitions(${program} PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${program} PRIVATE kiln_runtime)
  if(KILN_STATIC)  # as the command of that preset
    target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  add_dependencies(${program} kiln-worker)
endforeach()
