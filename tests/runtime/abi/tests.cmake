# The C ABI, called from C.
add_executable(c_abi_test runtime/abi/c_abi_test.c)
set_target_properties(c_abi_test PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
set_property(TARGET c_abi_test PROPERTY COMPILE_OPTIONS -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror)
target_link_libraries(c_abi_test PRIVATE kiln kiln_fake_cuda)
add_dependencies(c_abi_test kiln-worker)
foreach(name null_handles_are_invalid_arguments struct_sizes_are_respected errors_say_what_and_where gets_and_launches attention_plans scopes_futures_plans_and_seals
    a_service_whose_mode_nobody_set_is_sealed_by_its_seal)
  add_test(NAME CAbi.${name} COMMAND ${runtime_folder}/abi/in_temporary_directory.sh $<TARGET_FILE:c_abi_test> ${name})
  set_tests_properties(CAbi.${name} PROPERTIES LABELS process TIMEOUT 120 SKIP_RETURN_CODE 77
    ENVIRONMENT "KILN_LIBCUDA=$<TARGET_FILE:kiln_fake_cuda>")
endforeach()

# Each public header compiles alone, twice in one unit, with warnings as errors.
file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/kiln/*)
foreach(header ${public_headers})
  string(MAKE_C_IDENTIFIER ${header} id)
  set(text "#include <${header}>\n#include <${header}>\n")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.cpp CONTENT "${text}")
  add_test(NAME Headers.${header}.Cxx17 COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -Wall -Wextra -Wshadow -Wold-style-cast -Werror -pedantic
    "-DKILN_INSTALL_PREFIX=\"/opt/kiln\""
    -fsyntax-only -I ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.cpp)
  set(names Headers.${header}.Cxx17)
  if(header MATCHES "\\.h$")
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.c CONTENT "${text}")
    add_test(NAME Headers.${header}.C11 COMMAND ${CMAKE_C_COMPILER} -std=c11 -Wall -Wextra -Wstrict-prototypes -Werror -pedantic
      "-DKILN_INSTALL_PREFIX=\"/opt/kiln\""
      -fsyntax-only -I ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.c)
    list(APPEND names Headers.${header}.C11)
  endif()
  set_tests_properties(${names} PROPERTIES LABELS unit TIMEOUT 60)
endforeach()

add_test(NAME ArgumentTypes.WhatCanNeverBeOneDoesNotCompile COMMAND ${runtime_folder}/launch/argument_rules_test.sh
  ${CMAKE_CXX_COMPILER} ${PROJECT_SOURCE_DIR}/include)
set_tests_properties(ArgumentTypes.WhatCanNeverBeOneDoesNotCompile PROPERTIES LABELS unit TIMEOUT 120)

add_test(NAME Library.ExportsOnlyKilnAndNeedsNoCuda COMMAND ${runtime_folder}/abi/symbols_test.sh $<TARGET_FILE:kiln>)
set_tests_properties(Library.ExportsOnlyKilnAndNeedsNoCuda PROPERTIES LABELS unit)
