# Pages of docs/ that are generated, or whose commands and code can be run.
kiln_tests(docs_gpu_test SOURCES docs/*_gpu_test.cpp USES kiln_process LABEL gpu)
if(KILN_STATIC)
  kiln_leave_out(docs/writing_templates_launch_test.cpp)
else()
  kiln_tests(runtime_fake_tests SOURCES docs/writing_templates_launch_test.cpp LABEL process)
endif()
kiln_tests(docs_tests SOURCES docs/*_test.cpp USES kiln_process LABEL process)
