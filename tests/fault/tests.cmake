# The fault matrix of docs/internals/faults.md. Each test prints its row as a line "FIGURES ...".
# soak.cmake runs the same tests for longer.
include(${CMAKE_CURRENT_LIST_DIR}/../support/fault/fault.cmake)

# Libraries that the tests preload. They must not come before a sanitizer's own.
add_library(kiln_fake_filesystem SHARED support/fake_filesystem.cpp)
set_target_properties(kiln_fake_filesystem PROPERTIES CXX_VISIBILITY_PRESET default)
target_compile_definitions(kiln_fake_filesystem PRIVATE _GNU_SOURCE)
target_link_libraries(kiln_fake_filesystem PRIVATE dl)
add_library(kiln_shifted_clock SHARED support/shifted_clock.cpp)
target_include_directories(kiln_shifted_clock PRIVATE ${PROJECT_SOURCE_DIR})
set_target_properties(kiln_shifted_clock PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
foreach(library kiln_fake_filesystem kiln_shifted_clock)
  target_compile_options(${library} PRIVATE -fno-sanitize=all)
  target_link_options(${library} PRIVATE -fno-sanitize=all)
endforeach()

# The disk, eviction, and the gate with crowds and stopped processes.
kiln_tests(fault_store_tests SOURCES fault/store/interposer_test.cpp USES kiln_fault kiln_cache PkgConfig::lmdb)
kiln_tests(fault_store_tests SOURCES fault/store/cap_test.cpp fault/store/recent_uses_test.cpp fault/store/leftover_test.cpp LABEL fault IN_MEMORY)
kiln_tests(fault_store_tests SOURCES fault/store/*.cpp LABEL fault)

# Damaged stores heal once, and only what is damaged. Clocks that jump.
kiln_tests(fault_damage_tests SOURCES fault/damage/*.cpp USES kiln_shifted_clock kiln_fault kiln_cache PkgConfig::lmdb LABEL fault IN_MEMORY)

# One compile for many callers, when the process that holds the flight dies.
kiln_tests(fault_runtime_tests SOURCES fault/flight/path_test.cpp fault/flight/long_writer_test.cpp USES kiln_runtime LABEL fault)
kiln_tests(fault_flight_tests SOURCES fault/flight/*_test.cpp USES kiln_cache LABEL fault)

# Blobs: containers, disks, clocks, and a tier that lies.
kiln_tests(fault_blob_tests SOURCES fault/blob/*_test.cpp USES kiln_fault kiln_shifted_clock kiln_runtime kiln_cache LABEL fault)

# The compile workers: sources that never end or read forbidden files, workers that answer garbage, the pool
# and its slots, precompiled headers, and hosts that do odd things.
kiln_tests(fault_runtime_tests SOURCES fault/compile/workers_test.cpp LABEL fault TIMEOUT 900 LOCK all_cores)
kiln_tests(fault_runtime_tests SOURCES fault/compile/*_test.cpp LABEL fault TIMEOUT 600)

# The places of stores: directories as they are on real hosts and in containers, and copies of the library.
kiln_tests(fault_runtime_tests SOURCES fault/places/places_test.cpp fault/places/layers_test.cpp LABEL fault LOCK var_tmp)
add_dependencies(fault_runtime_tests kiln-worker)
kiln_tests(fault_command_tests SOURCES fault/places/command_test.cpp USES kiln_process kiln_fault kiln_cache LABEL fault LOCK var_tmp)
kiln_tests(fault_command_tests SOURCES fault/places/path_test.cpp LABEL fault)
add_dependencies(fault_command_tests kiln_fake_filesystem)
if(KILN_STATIC)
  kiln_leave_out(fault/places/copies_test.cpp)
else()
  kiln_tests(fault_copies_test SOURCES fault/places/copies_test.cpp USES kiln_fault kiln_cache kiln_toolchain LABEL fault)
  add_dependencies(fault_copies_test kiln kiln-worker)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/soak.cmake)
