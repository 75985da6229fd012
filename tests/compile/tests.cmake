set(several worker pool invariant pch pch_fault advice_process trace_too_large)  # several processes
list(TRANSFORM several REPLACE ".+" "compile/\\0_test.cpp")
kiln_tests(compile_tests SOURCES ${several} USES kiln_compile LABEL process)
kiln_tests(compile_tests SOURCES compile/*.cpp)
add_dependencies(compile_tests kiln-worker)

if(NOT KILN_SANITIZE)  # a sanitizer has an mmap of its own
  add_test(NAME Worker.ExportsItsMmapAlone COMMAND ${CMAKE_CURRENT_LIST_DIR}/worker_symbols_test.sh $<TARGET_FILE:kiln-worker>)
  set_tests_properties(Worker.ExportsItsMmapAlone PROPERTIES LABELS unit TIMEOUT 60)
endif()
