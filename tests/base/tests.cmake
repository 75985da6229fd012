kiln_test(base_test SOURCES base/base_test.cpp base/lazy_test.cpp base/log_test.cpp USES kiln_base LABEL unit)
