# Stands in for find_package(Python) in a cross build (tools/wheel.sh), where no Python of the target runs.
# KILN_PYTHON_HEADERS lists the directories of Python.h and of its pyconfig.h. KILN_PYTHON_VERSION is the oldest Python
# that the module is for: before 3.12 the only one, and from 3.12 on the module has the stable ABI.
# KILN_PYTHON_TAG is the module's tag, such as cpython-311-x86_64-linux-gnu.
set(Python_VERSION ${KILN_PYTHON_VERSION})
set(Python_INTERPRETER_ID Python)
set(Python_INCLUDE_DIRS ${KILN_PYTHON_HEADERS})
set(Python_SOABI ${KILN_PYTHON_TAG})
set(Python_SOSABI abi3)
set(Python_Development.Module_FOUND TRUE)
add_executable(Python::Interpreter IMPORTED)
foreach(library Module SABIModule)
  add_library(Python::${library} INTERFACE IMPORTED)
  target_include_directories(Python::${library} INTERFACE ${KILN_PYTHON_HEADERS})
endforeach()
# nanobind's headers use <cstdio> and do not include it, which libc++ shows with the stable ABI of Python.
add_compile_options(-include stdio.h)
