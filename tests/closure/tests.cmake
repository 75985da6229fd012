kiln_tests(source_tests SOURCES closure/*.cpp USES kiln_library)
