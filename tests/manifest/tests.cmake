kiln_tests(source_tests SOURCES manifest/*.cpp USES kiln_library)
