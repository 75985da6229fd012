kiln_tests(source_tests SOURCES instantiate/*.cpp USES kiln_library)
