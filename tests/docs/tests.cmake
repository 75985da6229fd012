# Pages of docs/ that are made of what they describe, or that print what can be run.
kiln_test(docs_templates_page_test IN docs_tests SOURCES docs/templates_page_test.cpp USES kiln_process LABEL process TIMEOUT 300)
kiln_test(docs_templates_page_gpu_test SOURCES docs/templates_page_gpu_test.cpp USES kiln_process LABEL gpu TIMEOUT 300)
kiln_test(docs_writing_templates_test IN docs_tests SOURCES docs/writing_templates_test.cpp USES kiln_process LABEL process TIMEOUT 300)
kiln_test(docs_writing_templates_gpu_test SOURCES docs/writing_templates_gpu_test.cpp USES kiln_process LABEL gpu TIMEOUT 300)
if(COMMAND kiln_fake_test)
  kiln_fake_test(docs_writing_templates_launch_test SOURCES docs/writing_templates_launch_test.cpp)
endif()
