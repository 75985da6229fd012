# Rules for `cmake --install`, find_package() and pkg-config. There are three install components:
# - runtime: the shared library
# - development: headers, the link libkiln.so, the static library where it was built, the CMake package, kiln.pc
# - command: the command, the compile worker, the templates, man pages and completions
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)

# Stops an install of the component when a file of it was not built, and says how to build the file.
function(kiln_install_needs component target file)
  install(CODE "if(NOT EXISTS \"${file}\")
    message(FATAL_ERROR \"The component ${component} needs ${file}, which was not built. \"
      \"Build it with: cmake --build ${PROJECT_BINARY_DIR} --target ${target}\")
  endif()" COMPONENT ${component})
endfunction()

# kiln_install_library(PART TARGET): gives the target to find_package(), from the build tree and from an installation.
# PART is shared, static or headers, as in COMPONENTS of find_package().
function(kiln_install_library part target)
  if(NOT KILN_INSTALL)
    return()
  endif()
  set(namelink NAMELINK_COMPONENT development)
  if(KILN_PYTHON)
    set(namelink NAMELINK_SKIP)
  elseif(part STREQUAL shared)
    kiln_install_needs(development kiln-library $<TARGET_LINKER_FILE:${target}>)
  endif()
  if(part STREQUAL shared)
    kiln_install_needs(runtime kiln-library $<TARGET_FILE:${target}>)
  elseif(part STREQUAL static AND KILN_STATIC)
    kiln_install_needs(development kiln-library $<TARGET_FILE:${target}>)
  elseif(part STREQUAL static)
    set(optional OPTIONAL)  # made by `cmake --build DIR --target kiln_static`
  endif()
  install(TARGETS ${target} EXPORT kiln-${part} LIBRARY COMPONENT runtime ${namelink} ARCHIVE COMPONENT development ${optional})
  install(EXPORT kiln-${part} NAMESPACE kiln:: DESTINATION ${cmake_dir} COMPONENT development)
  export(EXPORT kiln-${part} NAMESPACE kiln:: FILE ${PROJECT_BINARY_DIR}/kiln-${part}.cmake)
endfunction()

if(NOT KILN_INSTALL)
  return()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kiln DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# The CMake package, once for the build tree (find_package(kiln PATHS build/release)) and once to install.
set(generated ${PROJECT_BINARY_DIR}/packaging)
set(library_dir ${PROJECT_BINARY_DIR})
configure_file(packaging/kilnConfig.cmake.in ${PROJECT_BINARY_DIR}/kilnConfig.cmake @ONLY)
set(library_dir "\${CMAKE_CURRENT_LIST_DIR}/../..")
configure_file(packaging/kilnConfig.cmake.in ${generated}/kilnConfig.cmake @ONLY)
# While kiln is 0.x, a minor release may change the interface, so find_package(kiln 0.2) takes 0.2.x alone. The name
# libkiln.so.0 is one for all of 0.x, and cannot tell 0.2 from 0.3. So the shlibs file of the Debian package binds a
# program to the minor release that it was built with (docs/reference/versions.md).
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${generated}/kilnConfig.cmake ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake DESTINATION ${cmake_dir} COMPONENT development)

# kiln.pc names its prefix relative to itself, so that the installation may move.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
set(static_uses "-lstdc++ -lm -lpthread -ldl")
set(link -lkiln)
if(KILN_PYTHON)  # a wheel cannot hold the link libkiln.so
  set(link -l:libkiln.so.${PROJECT_VERSION_MAJOR})
endif()
if(KILN_STATIC)
  set(uses " ${static_uses}")
else()
  set(private "Libs.private: ${static_uses}")
endif()
configure_file(packaging/kiln.pc.in ${generated}/kiln.pc @ONLY)
install(FILES ${generated}/kiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
