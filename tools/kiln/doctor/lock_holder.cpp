#include "tools/kiln/doctor/lock_holder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "base/fd.hpp"
#include "cache/flight/flight.hpp"
#include "cache/lock/gate.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

int hold() {
  if (::write(STDOUT_FILENO, "+", 1) != 1) return 1;
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

const base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(2)); }

int hold_gate(const std::string& directory) {
  const base::Fd fd(::open((directory + "/v1/data.mdb").c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return 1;
  constexpr auto writers = cache::kGateOffset + 2;
  const auto lock = cache::RangeLock::acquire(fd.get(), writers, cache::RangeLock::Mode::exclusive, soon());
  return lock ? hold() : 1;
}

int hold_flight(const std::string& identity) {
  const auto file = cache::FlightFile::open({.store_identity = identity, .store_place = {}});
  return file->take(Key{}, soon()).flight ? hold() : 1;
}

int hold_lock(const std::string& what, const std::string& where) noexcept try {
  return what == "gate" ? hold_gate(where) : hold_flight(where);
} catch (...) {
  return 1;
}

}  // namespace

void add_lock_holder(Command, Context& context) {
  context.add_hidden_command(kLockHolderCommand, 2, [](const std::vector<std::string>& words) {
    return hold_lock(words[0], words[1]);
  });
}

}  // namespace kiln::cli
