kiln_tests(remote_tests SOURCES remote/fault_test.cpp remote/unreachable_test.cpp remote/partition_test.cpp LABEL fault
  USES kiln_cache PkgConfig::sodium)
set(several client tls cluster acl backend seam)  # these tests start several processes
list(TRANSFORM several REPLACE ".+" "remote/\\0_test.cpp")
kiln_tests(remote_tests SOURCES ${several} LABEL process)
# Each of these counts allocations of its process.
kiln_tests(remote_tier_test SOURCES remote/tier_test.cpp USES kiln_cache PkgConfig::sodium LABEL fault)
kiln_tests(remote_envelope_test SOURCES remote/envelope_test.cpp USES kiln_cache PkgConfig::sodium)
kiln_tests(remote_tests SOURCES remote/*.cpp)

# The simulation runs thousands of fleets. Optimised, these tests take a fifth of the time. The precompiled header is not optimised.
set(simulation remote/simulation.cpp remote/simulation_check.cpp remote/simulation_server.cpp remote/simulation_weather.cpp
  remote/lease_simulation_test.cpp remote/poison_test.cpp)
set_source_files_properties(${simulation} PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
