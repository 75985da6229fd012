kiln_tests(fleet_tests SOURCES fleet/fault_test.cpp fleet/unreachable_test.cpp fleet/partition_test.cpp LABEL fault
  USES kiln_cache PkgConfig::sodium)
set(several client tls cluster acl backend seam)  # these tests start several processes
list(TRANSFORM several REPLACE ".+" "fleet/\\0_test.cpp")
kiln_tests(fleet_tests SOURCES ${several} LABEL process)
# Each of these counts allocations of its process.
kiln_tests(fleet_tier_test SOURCES fleet/tier_test.cpp USES kiln_cache PkgConfig::sodium LABEL fault)
kiln_tests(fleet_envelope_test SOURCES fleet/envelope_test.cpp USES kiln_cache PkgConfig::sodium)
kiln_tests(fleet_tests SOURCES fleet/*.cpp)

# The simulation runs thousands of fleets. Optimised, these tests take a fifth of the time. The precompiled header is not optimised.
set(simulation fleet/simulation.cpp fleet/simulation_check.cpp fleet/simulation_server.cpp fleet/simulation_weather.cpp
  fleet/lease_simulation_test.cpp fleet/poison_test.cpp)
set_source_files_properties(${simulation} PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
