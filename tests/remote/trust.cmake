# Envelopes, rows and leases.
kiln_test(remote_lease_simulation_test
  SOURCES remote/lease_simulation_test.cpp remote/simulation.cpp remote/simulation_server.cpp USES kiln_remote)
kiln_test(remote_acl_test SOURCES remote/acl_test.cpp USES kiln_remote LABEL process)
