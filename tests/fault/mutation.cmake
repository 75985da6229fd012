# The soak: TMPDIR=/dev/shm KILN_SOAK_MUTATIONS=24000 fault_mutation_test
kiln_test(fault_mutation_test IN fault_cache_tests SOURCES fault/mutation_test.cpp fault/mutation.cpp fault/mutation_kinds.cpp
  USES kiln_cache PkgConfig::lmdb LABEL fault)
