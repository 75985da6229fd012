kiln_test(fault_flight_test IN fault_cache_tests SOURCES fault/flight_holder_test.cpp fault/flight_place_test.cpp USES kiln_cache LABEL fault)
kiln_test(fault_flight_storm_test IN fault_cache_tests SOURCES fault/flight_storm_test.cpp USES kiln_cache LABEL fault)
kiln_test(fault_flight_path_test IN fault_runtime_tests SOURCES fault/flight_path_test.cpp USES kiln_runtime LABEL fault TIMEOUT 300)
add_dependencies(fault_flight_path_test kiln-worker)
