# libFuzzer programs of what reads a store's bytes. Built by the preset `fuzz` (clang), run by hand:
#   build/fuzz/fuzz_seeds CORPUS; build/fuzz/fuzz_pages CORPUS/pages -max_total_time=180 -max_len=262144
add_executable(fuzz_seeds tests/fuzz/seeds.cpp)
target_link_libraries(fuzz_seeds PRIVATE kiln_cache)
add_library(kiln_mutation STATIC tests/fault/mutation.cpp tests/fault/mutation_kinds.cpp)
target_include_directories(kiln_mutation PUBLIC ${PROJECT_SOURCE_DIR})
foreach(name record pages tally board)
  add_executable(fuzz_${name} tests/fuzz/${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE kiln_cache kiln_mutation)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
