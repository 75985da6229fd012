// Steps 1 to 6 of the one path: an image for an instantiation, from memory, the stores, somebody else's
// flight, the fleet's tier or the compiler.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "runtime/path/compile.hpp"
#include "runtime/path/disk.hpp"
#include "runtime/path/explain.hpp"
#include "runtime/path/fleet.hpp"
#include "runtime/path/flight.hpp"
#include "runtime/path/host_lock.hpp"
#include "runtime/path/memory.hpp"
#include "runtime/path/publisher.hpp"

namespace kiln::runtime {

/// Thread-safe.
class Path {
 public:
  /// `state` must outlive it.
  explicit Path(ServiceState& state);
  /// Ends the compiles that it started, then waits at most 2 s for what is not published yet. A forked child
  /// waits for its own only.
  ~Path();

  /// One compile per key, however many threads and processes ask. Throws CompileError and Error, also
  /// Error(manifest) when the image takes other arguments than the manifest declares. A source that was
  /// refused is remembered under its key, so that asking again costs nothing and says the same until a file
  /// changes. A compile that was killed, timed out or ran out of memory is not tried again before a pause
  /// (1 s, doubling up to 5 min); until then its error is said again.
  Obtained obtain(const source::Instantiation& unit, const ObtainOptions& options);
  /// The same from memory and disk only; nothing when it is not there.
  std::optional<Obtained> there(const source::Instantiation& unit, const ObtainOptions& options);
  /// Memory and disk, counted by nobody: what obtain would find. For prewarm --check.
  std::optional<Outcome> look(const source::Instantiation& unit);
  /// The same with its reasons, by the rules of `options`. Compiles nothing and takes no part in a flight;
  /// works without a compiler as far as `obtain` does.
  Explanation explain(const source::Instantiation& unit, const ObtainOptions& options);
  /// What it would be looked for under; from the files as they are now.
  compile::MadeKey key_of(const source::Instantiation& unit);

  /// Compiles under way end, and none begins any more. In a forked child: its own.
  void end_compiles() noexcept;
  /// Waits until what `obtain` has answered so far is in the store, and in the fleet's tier where that is
  /// written, or was skipped and counted (callers are answered before). False when the deadline passed first.
  bool flush(base::Deadline deadline = base::Deadline::never());

  HostLock& host_lock() noexcept { return host_lock_; }
  FleetLookup& fleet() noexcept { return fleet_; }
  ImageCompiler& compiler() noexcept { return compiler_; }

 private:
  Obtained obtain_image(const source::Instantiation& unit, const ObtainOptions& options);
  std::optional<Obtained> find(const Unit& unit, const ObtainOptions& options);
  Obtained fly(const std::shared_ptr<const Unit>& unit, const ObtainOptions& options);
  Obtained obtain_in_flight(const Unit& unit, const ObtainOptions& options, Flight& flight,
                            std::shared_ptr<cache::Flight>& host);
  void take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept;
  void publish(const Unit& unit, cache::Record record, const std::string& unpublishable,
               std::shared_ptr<cache::Flight> host, WhenFull when_full,
               Publication::Afterwards afterwards) noexcept;

  ServiceState& state_;
  std::atomic<bool> leaving_{false};  // ends waits for other processes' flights
  ForeignRecords foreign_;
  ImageMemory memory_;
  DiskLookup disk_;
  HostLock host_lock_;
  FleetLookup fleet_;
  OwnedEvents events_;  // ends after the publisher, whose thread may go on after it
  Publisher publisher_;
  ImageCompiler compiler_;
  Flights flights_;
};

}  // namespace kiln::runtime
