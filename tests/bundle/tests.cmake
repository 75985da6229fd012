kiln_test(bundle_format_test IN bundle_tests SOURCES bundle/format_test.cpp bundle/refusal_test.cpp bundle/chunks_test.cpp USES kiln_cache PkgConfig::zstd)
kiln_test(bundle_minisign_test IN bundle_tests SOURCES bundle/minisign_test.cpp USES kiln_cache PkgConfig::sodium)
