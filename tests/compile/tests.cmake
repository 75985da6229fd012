set(several worker pool invariant pch pch_fault advice_process trace_too_large)  # several processes
list(TRANSFORM several REPLACE ".+" "compile/\\0_test.cpp")
kiln_tests(compile_tests SOURCES ${several} USES kiln_compile LABEL process)
kiln_tests(compile_tests SOURCES compile/*.cpp)
add_dependencies(compile_tests kiln-worker)
