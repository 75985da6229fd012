kiln_test(remote_codec_test IN remote_tests
  SOURCES remote/url_test.cpp remote/breaker_test.cpp remote/reply_bound_test.cpp remote/slots_test.cpp remote/resolver_test.cpp
  USES kiln_cache)
kiln_test(remote_client_test IN remote_tests SOURCES remote/client_test.cpp USES kiln_cache LABEL process)
kiln_test(remote_fault_test IN remote_tests SOURCES remote/fault_test.cpp remote/unreachable_test.cpp USES kiln_cache LABEL fault)
kiln_test(remote_tls_test IN remote_tests SOURCES remote/tls_test.cpp USES kiln_cache LABEL process)
kiln_test(remote_cluster_test IN remote_tests SOURCES remote/cluster_test.cpp USES kiln_cache LABEL process)
kiln_test(remote_partition_test IN remote_tests SOURCES remote/partition_test.cpp USES kiln_cache PkgConfig::sodium LABEL fault)
include(${CMAKE_CURRENT_LIST_DIR}/trust.cmake)
