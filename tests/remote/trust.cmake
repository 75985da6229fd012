# Envelopes, rows and leases.
kiln_test(remote_lease_simulation_test IN remote_tests
  SOURCES remote/lease_simulation_test.cpp remote/simulation.cpp remote/simulation_weather.cpp remote/simulation_check.cpp remote/simulation_server.cpp
  USES kiln_cache)
kiln_test(remote_acl_test IN remote_tests SOURCES remote/acl_test.cpp USES kiln_cache LABEL process)
kiln_test(remote_backend_test IN remote_tests SOURCES remote/backend_test.cpp USES kiln_cache PkgConfig::sodium LABEL process)
kiln_test(remote_tier_test SOURCES remote/tier_test.cpp USES kiln_cache PkgConfig::sodium LABEL fault)
kiln_test(remote_envelope_test SOURCES remote/envelope_test.cpp USES kiln_cache PkgConfig::sodium)
kiln_test(remote_trust_test IN remote_tests SOURCES remote/toolchain_row_test.cpp remote/poison_test.cpp remote/lease_test.cpp
  remote/lease_commands_test.cpp USES kiln_cache PkgConfig::sodium)
