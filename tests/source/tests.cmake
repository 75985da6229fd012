kiln_test(source_test
  SOURCES source/expression_test.cpp source/expression_random_test.cpp source/manifest_test.cpp
          source/manifest_rules_test.cpp source/manifest_foreign_test.cpp source/manifest_rules_launch_test.cpp source/manifest_compile_test.cpp source/manifest_work_list_test.cpp
          source/catalog_test.cpp source/resolve_test.cpp source/instantiate_test.cpp source/plan_test.cpp source/record_text_test.cpp
          source/include_scan_test.cpp source/include_scan_noise_test.cpp source/closure_test.cpp
          source/closure_toolkit_test.cpp source/closure_faults_test.cpp source/scan_cache_test.cpp source/scan_memo_test.cpp source/closure_trace_test.cpp source/toml_quick_test.cpp
          source/toolkit_test.cpp source/shipped_test.cpp source/tune_test.cpp
  USES kiln_library)
