# Where stores live: directories as they really are on hosts and in containers.
add_library(kiln_fake_filesystem SHARED ${PROJECT_SOURCE_DIR}/tests/support/fake_filesystem.cpp)
set_target_properties(kiln_fake_filesystem PROPERTIES CXX_VISIBILITY_PRESET default)
target_compile_definitions(kiln_fake_filesystem PRIVATE _GNU_SOURCE)
target_link_libraries(kiln_fake_filesystem PRIVATE dl)
# A preloaded library must not come before a sanitizer's own.
target_compile_options(kiln_fake_filesystem PRIVATE -fno-sanitize=all)
target_link_options(kiln_fake_filesystem PRIVATE -fno-sanitize=all)

kiln_test(cache_directory_test IN cache_tests SOURCES fault/directory_test.cpp USES kiln_cache LABEL process)
kiln_test(cache_tally_test IN cache_tests SOURCES fault/tally_test.cpp USES kiln_cache LABEL process)
kiln_test(places_test IN fault_runtime_tests SOURCES fault/places_test.cpp fault/layers_test.cpp USES kiln_runtime LABEL fault LOCK var_tmp)
add_dependencies(places_test kiln-worker)
kiln_test(places_command_test SOURCES fault/places_command_test.cpp USES kiln_process LABEL fault LOCK var_tmp)
target_compile_definitions(places_command_test PRIVATE KILN_FAKE_FILESYSTEM="$<TARGET_FILE:kiln_fake_filesystem>")
add_dependencies(places_command_test kiln_fake_filesystem)
