kiln_test(cache_record_test SOURCES cache/record_test.cpp USES kiln_cache)
kiln_test(cache_store_test SOURCES cache/store_test.cpp USES kiln_cache PkgConfig::lmdb)
kiln_test(cache_place_test SOURCES cache/place_test.cpp USES kiln_cache LABEL process)
kiln_test(cache_gate_test SOURCES cache/gate_test.cpp USES kiln_cache LABEL process)
kiln_test(cache_board_test SOURCES cache/board_test.cpp USES kiln_cache)
kiln_test(cache_flight_test SOURCES cache/flight_test.cpp USES kiln_cache LABEL process)
kiln_test(cache_concurrency_test SOURCES cache/concurrency_test.cpp USES kiln_cache PkgConfig::lmdb LABEL process)

# Not a ctest test: run `store_bench` (KILN_BENCH_ENTRIES=100000 for a large store).
find_package(benchmark QUIET)
if(benchmark_FOUND)
  add_executable(store_bench bench/store_bench.cpp)
  target_link_libraries(store_bench PRIVATE kiln_cache PkgConfig::lmdb benchmark::benchmark)
endif()
