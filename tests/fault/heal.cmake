# A store heals once, and only what is damaged; each test with the fault that it needs.
kiln_test(fault_heal_test IN fault_clock_tests SOURCES fault/heal_test.cpp fault/meta_page_test.cpp fault/no_room_test.cpp USES kiln_shifted_clock kiln_fault kiln_cache PkgConfig::lmdb LABEL fault)
kiln_test(fault_file_races_test IN fault_clock_tests SOURCES fault/file_races_test.cpp USES kiln_shifted_clock kiln_fault kiln_cache PkgConfig::lmdb LABEL fault)
kiln_test(fault_long_writer_test IN fault_runtime_tests SOURCES fault/long_writer_test.cpp USES kiln_runtime LABEL fault)
