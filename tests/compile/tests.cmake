kiln_test(compile_unit_test SOURCES compile/machine_test.cpp compile/key_test.cpp compile/protocol_test.cpp compile/nvrtc_log_test.cpp USES kiln_compile LABEL unit)
kiln_test(compile_process_test SOURCES compile/worker_test.cpp compile/pool_test.cpp compile/invariant_test.cpp USES kiln_compile LABEL process TIMEOUT 300)
add_dependencies(compile_process_test kiln-worker)
