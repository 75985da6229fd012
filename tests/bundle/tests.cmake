kiln_tests(bundle_tests SOURCES bundle/*.cpp USES kiln_cache PkgConfig::zstd PkgConfig::sodium)
