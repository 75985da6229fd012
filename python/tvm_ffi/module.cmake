# kiln_tvm_ffi: the shared object that kiln.tvm_ffi.export() copies. It is linked against neither kiln nor tvm-ffi.
set(here ${CMAKE_CURRENT_LIST_DIR})
add_library(kiln_tvm_ffi MODULE ${here}/module.cpp ${here}/call.cpp ${here}/driver.cpp)
target_include_directories(kiln_tvm_ffi PRIVATE ${PROJECT_SOURCE_DIR}/include ${here})
target_compile_features(kiln_tvm_ffi PRIVATE cxx_std_20)
target_compile_options(kiln_tvm_ffi PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique> -fno-lto)
target_link_libraries(kiln_tvm_ffi PRIVATE dl)
# export() writes a System V hash table in place: one bucket with the functions of the copy (kiln/_elf.py).
target_link_options(kiln_tvm_ffi PRIVATE -Wl,--hash-style=sysv -Wl,--version-script=${here}/exports.map -Wl,-s)
set_target_properties(kiln_tvm_ffi PROPERTIES PREFIX "lib" UNITY_BUILD OFF CXX_VISIBILITY_PRESET hidden
  LINK_DEPENDS ${here}/exports.map LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/kiln/lib)
if(KILN_PYTHON)
  install(TARGETS kiln_tvm_ffi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
