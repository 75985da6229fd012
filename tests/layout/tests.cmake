kiln_test(layout_test SOURCES layout/layout_test.cpp LABEL unit)
