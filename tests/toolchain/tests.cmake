include(${CMAKE_CURRENT_LIST_DIR}/../support/fake_driver/fake_driver.cmake)
# The ABI test needs the vendor's headers, where they are installed.
find_path(KILN_TEST_CUDA_INCLUDE cudaTypedefs.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include NO_DEFAULT_PATH)
if(KILN_TEST_CUDA_INCLUDE)
  set_source_files_properties(toolchain/abi_test.cpp toolchain/occupancy_test.cpp PROPERTIES COMPILE_OPTIONS "-isystem;${KILN_TEST_CUDA_INCLUDE}")
endif()
# Each of these loads a driver once per process.
kiln_tests(driver_load_test SOURCES toolchain/driver_load_test.cpp USES kiln_toolchain)
kiln_tests(fake_driver_test SOURCES toolchain/fake_driver_test.cpp USES kiln_toolchain kiln_make_cubin kiln_fake_cuda)
foreach(executable driver_load_test fake_driver_test)
  add_dependencies(${executable} kiln_fake_cuda)
endforeach()
kiln_tests(toolchain_gpu_test SOURCES toolchain/gpu_test.cpp USES kiln_toolchain LABEL gpu)
kiln_tests(toolchain_tests SOURCES toolchain/*.cpp USES kiln_toolchain kiln_make_cubin)
