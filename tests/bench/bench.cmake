# Programs that measure; built with the tests, run by hand. Ratios inside one process: absolute times mean nothing on shared machines.
add_executable(path_bench bench/path_bench.cpp)
target_compile_definitions(path_bench PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(path_bench PRIVATE kiln_runtime)
if(KILN_STATIC)  # as the command of that preset
  target_link_options(path_bench PRIVATE -static-libstdc++ -static-libgcc)
endif()
add_dependencies(path_bench kiln-worker)

add_executable(pch_bench bench/pch_bench.cpp)
target_compile_definitions(pch_bench PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(pch_bench PRIVATE kiln_compile)
add_dependencies(pch_bench kiln-worker)
