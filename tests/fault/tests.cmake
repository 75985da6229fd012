# The fault matrix of docs/reliability.md.
foreach(rows damage mutation disk flight places races heal odd_hosts workers hostile)
  include(${CMAKE_CURRENT_LIST_DIR}/${rows}.cmake)
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/soak.cmake)
