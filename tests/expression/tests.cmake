kiln_tests(source_tests SOURCES expression/*.cpp USES kiln_library)
