/* A shared library that is linked without a build-id, like NVIDIA's libnvrtc-builtins for aarch64. */
int kiln_test_no_build_id(void);
int kiln_test_no_build_id(void) { return 1; }
