kiln_tests(source_tests SOURCES source/*.cpp USES kiln_library)
target_include_directories(source_tests PRIVATE source)
