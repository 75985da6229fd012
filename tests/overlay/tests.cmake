kiln_tests(foreign_tests SOURCES overlay/*process_test.cpp USES kiln_process LABEL process)
kiln_tests(source_tests SOURCES overlay/*.cpp USES kiln_library)
