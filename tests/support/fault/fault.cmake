# kiln_fault builds libkiln_fault.so. The fault tests link it in front of libc, and preload it into the command.
# It needs no C++ library and no sanitizer, so that any program can preload it.
file(GLOB fault_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
add_library(kiln_fault SHARED ${fault_sources})
target_compile_options(kiln_fault PRIVATE -fno-exceptions -fno-rtti -fno-sanitize=all)
target_include_directories(kiln_fault INTERFACE ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(kiln_fault PRIVATE dl)
target_link_options(kiln_fault PRIVATE -Wl,--as-needed -fno-sanitize=all)
set_target_properties(kiln_fault PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
