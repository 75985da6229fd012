# Pages of docs/ that are made of what they describe, or that print what can be run.
kiln_test(docs_templates_page_test SOURCES docs/templates_page_test.cpp USES kiln_process LABEL process)
