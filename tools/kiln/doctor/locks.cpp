// Probes with two processes that contend for a lock: the store's gate, and the flight lock of a key.
#include "tools/kiln/doctor/locks.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/hash.hpp"
#include "cache/flight/flight.hpp"
#include "cache/store/store.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/child_process.hpp"
#include "tools/kiln/doctor/finding.hpp"
#include "tools/kiln/doctor/lock_holder.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;
using std::chrono::milliseconds;

constexpr milliseconds kShort{50}, kLong{5000};

constexpr std::string_view kSubject = "doctor's probe";

/// True when the board shows to others the compile that a flight's holder reports.
bool shows_compile(cache::FlightFile& file) {
  const auto taken = file.take(Key{}, base::Deadline::after(kLong));
  if (!taken.flight) return false;
  taken.flight->compiling(kSubject);
  const auto board = file.board();
  return std::any_of(board.begin(), board.end(), [](const auto& e) { return e.subject == kSubject; });
}

/// Takes a lock while another process holds it, and again after that process was killed. Returns what went
/// wrong, or an empty string.
template <class Take>
std::string contend(const std::string& what, const std::string& where, Take&& take) {
  ChildProcess holder({"/proc/self/exe", kLockHolderCommand, what, where});
  if (!holder.wait_for_byte(static_cast<int>(kLong.count())))
    return "a second process could not take the lock";
  if (take(kShort)) return "two processes hold the lock at once, so locks do not work here";
  holder.kill();
  return take(kLong) ? "" : "the lock stays taken after its holder was killed";
}

}  // namespace

void probe_gate(const std::string& directory, Findings& out) {
  const auto store = cache::Store::open({.directory = directory});
  const Key key{base::digest_of("doctor"), base::digest_of("gate")};
  const cache::Record record{key, "facts", "key text", "image"};
  const std::string wrong = contend("gate", directory, [&](milliseconds patience) {
    return store->put(record, patience).put == cache::Put::stored;
  });
  out.push_back(wrong.empty()
                    ? Finding{"gate", Status::ok,
                              "two processes exclude each other in the store; the lock of a killed process "
                              "is free at once"}
                    : Finding{"gate", Status::error, "the store's lock: " + wrong,
                              "set KILN_CACHE_DIR to a local filesystem"});
}

void probe_flight(Findings& out) {
  const std::string identity = "doctor-" + std::to_string(::getpid());
  std::string wrong, path;
  bool shown = true;
  try {
    const auto file = cache::FlightFile::open({.store_identity = identity, .store_place = {}});
    path = file->path();
    wrong = contend("flight", identity, [&](milliseconds patience) {
      return file->take(Key{}, base::Deadline::after(patience)).flight != nullptr;
    });
    if (wrong.empty()) shown = shows_compile(*file);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!path.empty()) {
    ::unlink(path.c_str());
    ::unlink((path.substr(0, path.rfind('.')) + ".board").c_str());
  }
  if (!wrong.empty())
    out.push_back({"/dev/shm", Status::warning, wrong + ": processes may compile the same kernel twice",
                   "mount a writable tmpfs on /dev/shm"});
  else if (!shown)
    out.push_back({"/dev/shm", Status::warning,
                   "/dev/shm is full or cannot be written: processes cannot see what others compile",
                   "free space on /dev/shm"});
  else
    out.push_back(
        {"/dev/shm", Status::ok, "two processes exclude each other, so a host compiles each kernel once"});
}

}  // namespace kiln::cli
