kiln_tests(source_tests SOURCES overlay/*.cpp USES kiln_library)
