# The templates' own tests in C++, one executable each: reference and kernel against the CPU. Those in Python are run.py's.
file(GLOB gpu_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_gpu_test.cpp)
foreach(source ${gpu_tests})
  get_filename_component(name ${source} NAME_WE)
  kiln_test(${name} SOURCES ${source} USES kiln_runtime LABEL gpu)
  add_dependencies(${name} kiln-worker)
endforeach()
