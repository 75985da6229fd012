include(${CMAKE_CURRENT_LIST_DIR}/../support/fake_driver/fake_driver.cmake)
set(toolchain_tests ${CMAKE_CURRENT_LIST_DIR})

kiln_test(toolchain_test IN toolchain_tests LABEL unit USES kiln_toolchain kiln_make_cubin SOURCES
  ${toolchain_tests}/build_id_test.cpp ${toolchain_tests}/cubin_test.cpp ${toolchain_tests}/elf_test.cpp
  ${toolchain_tests}/locate_test.cpp ${toolchain_tests}/abi_test.cpp
  ${toolchain_tests}/occupancy_test.cpp)
# Compared with the vendor's headers where there are some.
find_path(KILN_TEST_CUDA_INCLUDE cudaTypedefs.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include NO_DEFAULT_PATH)
if(KILN_TEST_CUDA_INCLUDE)
  set_source_files_properties(${toolchain_tests}/abi_test.cpp ${toolchain_tests}/occupancy_test.cpp TARGET_DIRECTORY toolchain_test PROPERTIES
    COMPILE_OPTIONS "-isystem;${KILN_TEST_CUDA_INCLUDE}")
endif()

kiln_test(nvrtc_test IN toolchain_tests LABEL unit USES kiln_toolchain kiln_make_cubin SOURCES
  ${toolchain_tests}/nvrtc_test.cpp ${toolchain_tests}/cubin_of_nvrtc_test.cpp)

kiln_test(driver_load_test LABEL unit USES kiln_toolchain SOURCES ${toolchain_tests}/driver_load_test.cpp)
target_compile_definitions(driver_load_test PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
add_dependencies(driver_load_test kiln_fake_cuda)

kiln_test(fake_driver_test LABEL unit USES kiln_toolchain kiln_make_cubin kiln_fake_cuda SOURCES
  ${toolchain_tests}/fake_driver_test.cpp)
target_compile_definitions(fake_driver_test PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")

kiln_test(toolchain_gpu_test LABEL gpu USES kiln_toolchain SOURCES ${toolchain_tests}/gpu_test.cpp)
