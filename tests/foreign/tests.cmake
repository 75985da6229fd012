# Kernels that were not written for kiln, used with only their manifests (tests/fixtures/foreign).
kiln_tests(foreign_gpu_test SOURCES foreign/*gpu_test.cpp USES kiln_runtime kiln_process LABEL gpu)
add_dependencies(foreign_gpu_test kiln-worker)
if(KILN_STATIC)
  kiln_leave_out(foreign/launch_test.cpp)
else()
  kiln_tests(runtime_fake_tests SOURCES foreign/launch_test.cpp LABEL process)
endif()
kiln_tests(foreign_tests SOURCES foreign/*_test.cpp USES kiln_process LABEL process)
