# The package's tests run by pytest. A test is skipped (77) when the extension, pytest or torch is missing,
# and says which.
find_program(KILN_PYTHON_EXECUTABLE NAMES python3 DOC "Python for the package kiln and its tests: with nanobind and pytest, and torch for kiln.torch's")
if(NOT KILN_PYTHON_EXECUTABLE)
  message(STATUS "Python package: no tests, no python3 was found (KILN_PYTHON_EXECUTABLE)")
  return()
endif()
foreach(part package launch ops torch_operators torch_shapes torch_compiled torch_registry torch_modes torch_attention
    torch_linear torch_moe blobs fingerprint caches_triton caches_inductor caches_start caches_cuda_core
    tvm_ffi engines_flashinfer engines_hf_kernel engines_mixers engines_rwkv7 engines_sglang engines_transformers engines_vllm readme)
  add_test(NAME python_${part} COMMAND ${KILN_PYTHON_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/run.py ${CMAKE_CURRENT_LIST_DIR}/test_${part}.py)
  set(environment PYTHONPATH=${PROJECT_BINARY_DIR}/python PYTHONDONTWRITEBYTECODE=1)
  if(part MATCHES "torch_(operators|shapes|attention|linear|moe)|engines")  # they compile many templates, and share a store
    list(APPEND environment KILN_TEST_CACHE_DIR=${PROJECT_BINARY_DIR}/python/test-cache)
  endif()
  if(TARGET kiln_fake_cuda)
    list(APPEND environment KILN_TEST_FAKE_CUDA=$<TARGET_FILE:kiln_fake_cuda>)
  endif()
  set_tests_properties(python_${part} PROPERTIES LABELS process TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endforeach()
