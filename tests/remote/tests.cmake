kiln_test(remote_codec_test SOURCES remote/url_test.cpp remote/breaker_test.cpp USES kiln_remote)
kiln_test(remote_client_test SOURCES remote/client_test.cpp USES kiln_remote LABEL process)
include(${CMAKE_CURRENT_LIST_DIR}/trust.cmake)
