#include "runtime/launch/process_guard.hpp"

namespace kiln::runtime {

void ProcessGuard::fail(const std::string& name) {
  toolchain::Driver::refuse_in_forked_child("launching " + name);
  // Library::load notes the process in the driver's table, so the line above has thrown and this
  // is not reached.
  throw Error(Errc::internal, name + ": was loaded by another process");
}

}  // namespace kiln::runtime
