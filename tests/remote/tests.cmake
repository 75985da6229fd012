include(${CMAKE_CURRENT_LIST_DIR}/trust.cmake)
