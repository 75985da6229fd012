kiln_tests(layout_tests SOURCES layout/*.cpp)

# Counts members in clang's AST. Skipped (77) without the package python3-clang-14.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME Layout.NoClassHasMoreThanThirtyMembers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/members.py ${PROJECT_BINARY_DIR} --night)
  add_test(NAME Layout.AClassOfMoreThanThirtyMembersIsRefused COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/members_test.py)
  set_tests_properties(Layout.NoClassHasMoreThanThirtyMembers Layout.AClassOfMoreThanThirtyMembersIsRefused
    PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
  add_test(NAME Layout.TheCAbiIsTheListedOne COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/abi.py $<TARGET_FILE:kiln>)
  add_test(NAME Layout.NoStaticOfAFunctionIsMadeAtRunTime COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/statics.py $<TARGET_FILE:kiln>)
  add_test(NAME Layout.AStaticOfAFunctionThatIsMadeAtRunTimeIsFound COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/statics_test.py)
  set_tests_properties(Layout.AStaticOfAFunctionThatIsMadeAtRunTimeIsFound PROPERTIES LABELS unit TIMEOUT 300)
  set_tests_properties(Layout.TheCAbiIsTheListedOne PROPERTIES LABELS unit TIMEOUT 300)
  set_tests_properties(Layout.NoStaticOfAFunctionIsMadeAtRunTime PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
