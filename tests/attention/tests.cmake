kiln_test(attention_test
  SOURCES attention/plan_test.cpp attention/plan_random_test.cpp attention/teams_test.cpp attention/tiles_test.cpp
    attention/lengths_test.cpp attention/layout_test.cpp
  USES kiln_library)
target_include_directories(attention_test PRIVATE ${PROJECT_SOURCE_DIR}/templates)
