# kiln_fault: libkiln_fault.so, linked in front of libc by the fault tests and preloaded into the command. Needs no C++
# library and takes no sanitizer, so that it can be preloaded into anything.
file(GLOB fault_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
add_library(kiln_fault SHARED ${fault_sources})
target_compile_options(kiln_fault PRIVATE -fno-exceptions -fno-rtti -fno-sanitize=all)
target_include_directories(kiln_fault INTERFACE ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(kiln_fault PRIVATE dl)
target_link_options(kiln_fault PRIVATE -Wl,--as-needed -fno-sanitize=all)
set_target_properties(kiln_fault PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
