# Programs that measure. They are built with the tests and run by hand. They print ratios within one process,
# because absolute times mean nothing on shared machines.
add_executable(path_bench bench/path_bench.cpp)
add_executable(compile_bench bench/compile_bench.cpp bench/compile_common.cpp bench/compile_throughput.cpp bench/compile_single.cpp)
add_executable(pch_bench bench/pch_bench.cpp)
foreach(program path_bench compile_bench pch_bench)
  target_link_libraries(${program} PRIVATE kiln_library kiln_places)
  if(KILN_STATIC)  # like the command of that preset
    target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  add_dependencies(${program} kiln-worker)
endforeach()
find_package(benchmark QUIET)
if(benchmark_FOUND AND TARGET kiln_fake_cuda)
  add_executable(get_bench bench/get_bench.cpp)
  add_executable(launch_bench bench/launch_bench.cpp bench/launch_rows.cpp)
  foreach(program get_bench launch_bench)
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${program} PRIVATE kiln_places benchmark::benchmark dl)
    if(KILN_STATIC)
      target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc)
    endif()
    add_dependencies(${program} kiln-worker kiln_fake_cuda)
  endforeach()
  target_link_libraries(get_bench PRIVATE kiln_library)  # the bench fills the runtime's table
  if(KILN_STATIC)
    target_link_libraries(launch_bench PRIVATE kiln_library)
  else()
    target_link_libraries(launch_bench PRIVATE kiln kiln_toolchain)
  endif()
endif()

# The warm first kernel of an engine that uses only the public headers, beside other builds of
# the same file. Best with the `static` preset.
add_executable(first_kernel bench/first_kernel.cpp)
target_include_directories(first_kernel PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(first_kernel PRIVATE kiln dl)
add_dependencies(first_kernel kiln-worker)

# The command on a store of 10,000 entries: `inspect_bench
# PATH_TO_KILN`. Best with the kiln of the release preset.
add_executable(inspect_bench bench/inspect_bench.cpp)
target_link_libraries(inspect_bench PRIVATE kiln_compile kiln_cache)

# The host plan of an attention launch. Best with the optimisation of the release preset.
add_executable(attention_plan_bench bench/attention_plan_bench.cpp)
target_link_libraries(attention_plan_bench PRIVATE kiln_library)

# The fleet's tier beside the store and a compile. Starts a redis-server of its own.
add_executable(remote_bench bench/remote_bench.cpp)
target_include_directories(remote_bench PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(remote_bench PRIVATE kiln_library kiln_cache kiln_places)
add_dependencies(remote_bench kiln-worker)

# Compares eviction with true LRU: recency_bench
add_executable(recency_bench ${CMAKE_CURRENT_LIST_DIR}/recency_bench.cpp)
target_link_libraries(recency_bench PRIVATE kiln_cache Threads::Threads)
