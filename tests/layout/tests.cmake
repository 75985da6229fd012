kiln_tests(layout_tests SOURCES layout/*.cpp)
