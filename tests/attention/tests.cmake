kiln_tests(attention_tests SOURCES attention/*.cpp USES kiln_library)
target_include_directories(attention_tests PRIVATE ${PROJECT_SOURCE_DIR}/templates)
