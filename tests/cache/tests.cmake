set(several upkeep place gate flight slots activity locks_held concurrency directory tally)  # several processes
list(TRANSFORM several REPLACE ".+" "cache/\\0_test.cpp")
kiln_tests(cache_tests SOURCES ${several} USES kiln_cache PkgConfig::lmdb LABEL process)
kiln_tests(cache_tests SOURCES cache/*.cpp)

# store_bench is no ctest test. KILN_BENCH_ENTRIES=100000 makes a large store; `store_bench scale`
# prints a table of sizes.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(store_bench bench/store_bench.cpp bench/store_scale.cpp)
  target_include_directories(store_bench PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(store_bench PRIVATE kiln_cache PkgConfig::lmdb benchmark::benchmark)
endif()
