# kiln_fake_cuda builds libkiln_fake_cuda.so, for KILN_LIBCUDA.
# kiln_make_cubin makes small cubins without a compiler.
file(GLOB fake_driver_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(REMOVE_ITEM fake_driver_sources ${CMAKE_CURRENT_LIST_DIR}/make_cubin.cpp)
add_library(kiln_fake_cuda SHARED ${fake_driver_sources})
target_link_libraries(kiln_fake_cuda PRIVATE kiln_toolchain)
target_link_options(kiln_fake_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(kiln_fake_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

add_library(kiln_make_cubin STATIC ${CMAKE_CURRENT_LIST_DIR}/make_cubin.cpp)
target_include_directories(kiln_make_cubin PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(kiln_make_cubin PUBLIC kiln_toolchain)
