#include "runtime/launch/process_guard.hpp"

namespace kiln::runtime {

void ProcessGuard::fail(const std::string& name) {
  toolchain::Driver::refuse_in_forked_child("launching " + name);
  // Loading tells the driver's table of its process, so this is not reached.
  throw Error(Errc::internal, name + ": was loaded by another process");
}

}  // namespace kiln::runtime
