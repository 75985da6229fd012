# Kernels that were not written for kiln, by their manifests alone (tests/fixtures/foreign).
kiln_test(foreign_compile_test IN foreign_tests SOURCES foreign/compile_test.cpp USES kiln_process LABEL process TIMEOUT 300)
kiln_test(foreign_example_test IN foreign_tests SOURCES foreign/example_test.cpp USES kiln_process LABEL process TIMEOUT 300)
if(COMMAND kiln_fake_test)
  kiln_fake_test(foreign_launch_test SOURCES foreign/launch_test.cpp)
endif()
kiln_test(foreign_gpu_test SOURCES foreign/gpu_test.cpp USES kiln_runtime LABEL gpu TIMEOUT 300)
add_dependencies(foreign_gpu_test kiln-worker)
kiln_test(foreign_run_gpu_test SOURCES foreign/run_gpu_test.cpp USES kiln_process LABEL gpu TIMEOUT 300)
