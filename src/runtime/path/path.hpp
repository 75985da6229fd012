// Steps 1 to 6 of the one path: an image for an instantiation, from memory, the stores, another caller's
// flight, the fleet's tier or the compiler.
#pragma once

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

struct Publishing {
  OwnedEvents events;  // destroyed after the publisher, whose thread may still run
  Publisher publisher;
};

/// Thread-safe.
class Path {
 public:
  /// `state` must outlive it.
  explicit Path(ServiceState& state);
  /// Ends the compiles that it started, then waits at most 2 s for records that are not published yet. A
  /// forked child waits only for its own.
  ~Path();

  /// Makes one compile per key, however many threads and processes ask.
  /// Throws CompileError and Error, also Error(manifest) when the image takes other arguments than the
  /// manifest declares.
  /// The error of a refused source is remembered under its key. It is thrown again at no cost until
  /// a file changes.
  /// A compile that was killed, timed out or ran out of memory is tried again only after a pause (1 s,
  /// doubling up to 5 min). Until then its error is thrown again.
  Obtained obtain(const source::Instantiation& unit, const ObtainOptions& options);
  /// As obtain, but from memory and disk only; nothing when the image is in neither.
  std::optional<Obtained> there(const source::Instantiation& unit, const ObtainOptions& options);
  /// Where obtain would find the image in memory or on disk. Changes no counter. For prewarm --check.
  std::optional<Outcome> look(const source::Instantiation& unit);
  /// As look, with the reasons, and by the rules of `options`. Compiles nothing and takes no part in a
  /// flight. Works without a compiler as far as `obtain` does.
  Explanation explain(const source::Instantiation& unit, const ObtainOptions& options);
  /// The key that obtain would look for, from the files as they are now.
  compile::MadeKey key_of(const source::Instantiation& unit);

  /// Ends the compiles under way, and lets none begin. In a forked child: only the child's own.
  void end_compiles() noexcept;
  /// Waits for the records of all that `obtain` has returned so far, because callers are answered before. A
  /// record is then in the store (and in the fleet's tier where kiln writes to it), or was skipped and
  /// counted. False when the deadline passed first.
  bool flush(base::Deadline deadline = base::Deadline::never());

  Publisher& publisher() noexcept { return publishing_.publisher; }
  HostLock& host_lock() noexcept { return host_lock_; }
  FleetLookup& fleet() noexcept { return fleet_; }
  ImageCompiler& compiler() noexcept { return compiler_; }

 private:
  Obtained obtain_image(const source::Instantiation& unit, const ObtainOptions& options);
  std::optional<Obtained> find(const Unit& unit, const ObtainOptions& options);
  std::optional<Obtained> find_other_arch(const Unit& unit, const ObtainOptions& options, Counted counted);
  Obtained fetch(const std::shared_ptr<const Unit>& unit, const ObtainOptions& options);
  Obtained fly(const std::shared_ptr<const Unit>& unit, const ObtainOptions& options);
  Obtained obtain_in_flight(const Unit& unit, const ObtainOptions& options, Flight& flight,
                            std::shared_ptr<cache::Flight>& host);
  void take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept;
  void publish(const Unit& unit, cache::Record record, const std::string& unpublishable,
               std::shared_ptr<cache::Flight> host, WhenFull when_full,
               Publication::Afterwards afterwards) noexcept;

  ServiceState& state_;
  ForeignRecords foreign_;
  ImageMemory memory_;
  DiskLookup disk_;
  HostLock host_lock_;
  FleetLookup fleet_;
  Publishing publishing_;
  ImageCompiler compiler_;
  Flights flights_;
};

}  // namespace kiln::runtime
