# cpack makes the Debian packages kiln, libkiln0 and libkiln-dev, or of a static build one archive kiln-*.tar.gz, which
# may be unpacked anywhere. tools/packages.sh makes and checks both.
if(KILN_PYTHON OR KILN_SANITIZE)
  return()
endif()
# The licences of the libraries that are linked in, from Debian's packages on this machine.
set(linked libhiredis-dev libsodium-dev libzstd-dev libspdlog-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxxhash-dev)

set(CPACK_PACKAGE_NAME kiln)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PACKAGE_CHECKSUM SHA256)

if(KILN_STATIC)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME kiln-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kiln COMPONENT command)
  foreach(library ${linked} liblmdb-dev libssl-dev)
    install(FILES /usr/share/doc/${library}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kiln/licenses
      COMPONENT command RENAME ${library}.txt OPTIONAL)
  endforeach()
  include(CPack)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development command)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SOURCE kiln)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "kiln developers <developers@kiln.example>" CACHE STRING "Who makes the Debian packages")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(deb_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

# The library, the compile worker and the templates are one version (docs/reference/versions.md).
set(other_versions "(<< ${deb_version}), kiln (>> ${deb_version})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libkiln${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "kiln (= ${deb_version})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_BREAKS "kiln ${other_versions}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS libssl3)  # opened for rediss:// alone
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "runtime compilation of CUDA kernels - shared library
kiln compiles CUDA kernels at run time, keeps them on disk, and returns
them ready to launch. This package has the library that inference engines
link or open. The package kiln has the compile worker and the templates,
without which the library compiles nothing.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkiln-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libkiln${PROJECT_VERSION_MAJOR} (= ${deb_version})")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "runtime compilation of CUDA kernels - development files
kiln compiles CUDA kernels at run time, keeps them on disk, and returns
them ready to launch. This package has the headers for C and C++, the
static library, and the files for CMake and pkg-config.")

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME kiln)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "nvidia-cuda-toolkit (>= 12), libssl3")
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "runtime compilation of CUDA kernels - command
kiln compiles CUDA kernels at run time, keeps them on disk, and returns
them ready to launch. This package has the command that compiles, ships
and inspects kernels, the compile worker, and the templates. It needs
NVRTC 12 or newer, from a CUDA toolkit or from NVIDIA's Python wheels.")

# A program that is built with libkiln-dev depends on the minor release, because libkiln.so.0 is one name for all of 0.x.
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
set(package libkiln${PROJECT_VERSION_MAJOR})
set(this_minor ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
file(WRITE ${generated}/shlibs "libkiln ${PROJECT_VERSION_MAJOR} ${package} (>= ${this_minor}), ${package} (<< ${PROJECT_VERSION_MAJOR}.${next_minor}~)\n")
file(WRITE ${generated}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${generated}/shlibs ${generated}/triggers)

# Brings the staged files into the form that Debian asks for.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/stage.cmake)
set(CPACK_KILN_DEBIAN ${PROJECT_SOURCE_DIR}/packaging/debian)
set(CPACK_KILN_CHANGELOG ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
set(CPACK_KILN_LINKED ${linked})
set(CPACK_KILN_VERSION ${deb_version})
include(CPack)
