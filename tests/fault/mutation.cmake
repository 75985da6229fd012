kiln_test(fault_mutation_test SOURCES fault/mutation_test.cpp fault/mutation.cpp USES kiln_cache PkgConfig::lmdb LABEL fault)
