// Steps 1 to 6 of the one path: an image for an instantiation, from memory, disk, somebody else's flight or
// the compiler.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/deadline.hpp"
#include "base/lazy.hpp"
#include "base/process.hpp"
#include "cache/flight/flight.hpp"
#include "cache/store/store.hpp"
#include "compile/compiler.hpp"
#include "compile/tuned_choice.hpp"
#include "kiln/kernel.hpp"
#include "runtime/config.hpp"
#include "runtime/counters.hpp"
#include "runtime/events.hpp"
#include "runtime/host_slots.hpp"
#include "runtime/lifetime.hpp"
#include "runtime/places.hpp"
#include "runtime/publisher.hpp"

namespace kiln::fleet {
class Tier;
class HeldLease;
}  // namespace kiln::fleet

namespace kiln::runtime {

/// An image with what is known about it. Immutable, shared.
struct StoredImage {
  Key key;
  compile::Facts facts;
  std::string bytes;
};

struct Obtained {
  std::shared_ptr<const StoredImage> image;
  Outcome outcome = Outcome::memory;
  std::string unpublishable;  ///< not empty: served but not published, and why
};

/// Step 4: whether the fleet's tier is asked, which waits for the network.
enum class AskTier { yes, no };

/// Whether an image is given out that takes other arguments than its manifest declares.
enum class Arguments { as_declared, any };

/// What an instantiation's files are and the key that they make, as found a moment ago.
struct Prepared {
  Digest source;  ///< of the template's own text, which is no file of the closure
  source::Closure closure;
  compile::MadeKey made;
};

struct ObtainOptions {
  base::Deadline deadline = base::Deadline::never();
  bool may_compile = true;     ///< false: memory and disk, and the tier if it may be asked
  bool any_toolchain = false;  ///< on a sealed service: rather another toolchain's record than a compile
  std::set<Key> rejected{};    ///< records that the driver refused
  WhenFull when_full = WhenFull::skip;  ///< what happens to the record when the publisher's queue is full
  compile::Urgency urgency = compile::Urgency::caller;
  Arguments arguments = Arguments::as_declared;
  AskTier tier = AskTier::yes;
  /// The files of this instantiation, if this call has read them to look for a tuned choice; else null.
  std::shared_ptr<const Prepared> prepared{};
};

/// What steps 1 and 2 have for an instantiation, and what kept them from having more.
struct Explanation {
  /// A place that has something under this key and cannot serve it.
  struct Fault {
    std::string directory;
    cache::Miss miss;
  };
  compile::MadeKey made;
  std::optional<Obtained> found;  ///< its key is another one when it is another toolchain's record
  std::string directory;          ///< of the store that has it; empty: memory
  std::vector<Fault> faults;
  std::string unpublishable;  ///< not empty: no compile of it is ever cached, and why
  /// Spellings in project files that are found nowhere now, as source::Closure.
  std::vector<std::string> missing;
  /// A project file has a computed include: a compile is cached only if the key covers what it read.
  bool computed_include = false;
};

/// Of this user: in memory, gone with the boot whose inodes and mounts it names.
std::string default_memo_file();

class Pipeline {
 public:
  /// `memo_file` remembers toolkit headers (source/scan_memo.hpp).
  explicit Pipeline(const Config& config, const std::string& memo_file = default_memo_file(),
                    Events events = {});
  /// Ends the compiles that it started, then waits at most 2 s for what is not published yet. A forked child
  /// waits for its own only.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// One compile per key, however many threads and processes ask. Throws CompileError and Error, also
  /// Error(manifest) when the image takes other arguments than the manifest declares; a source
  /// that was refused is remembered under its key, so that asking again costs nothing and says the same until
  /// a file changes. A compile that was killed, timed out or ran out of memory is not tried again before a
  /// pause (1 s, doubling up to 5 min): until then its error is said again.
  Obtained obtain(const source::Instantiation& unit, const ObtainOptions& options);
  /// The same from memory and disk only, by the rules of one who may compile; nothing when it is not there.
  std::optional<Obtained> there(const source::Instantiation& unit, const ObtainOptions& options);
  /// Compiles under way end, and none begins any more. In a forked child: its own.
  void end_compiles() noexcept;
  /// Waits until what `obtain` has answered so far is in the store, and in the fleet's tier where that is
  /// written, or was skipped and counted (callers are answered before). False when the deadline passed first.
  bool flush(base::Deadline deadline = base::Deadline::never());
  /// Null when none is configured, or it cannot be used (which is warned of once). Touches no network.
  std::shared_ptr<fleet::Tier> tier();
  bool tier_is_open() const noexcept { return tier_.made() != nullptr; }
  /// A plan row that was not there, to the job that fills the tier. Waits for nothing. Nothing is sent by who
  /// has a key to sign with: that is the job, or a node whose fleet compiles.
  void report_missing(std::string row);
  /// Of the tier, if somebody asked for it.
  void read_tier(kiln_stats& out);
  /// Memory and disk, counted by nobody: what obtain would find. For prewarm --check.
  std::optional<Outcome> look(const source::Instantiation& unit);
  /// The same with its reasons, by the rules of `options`. Compiles nothing and takes no part in a flight;
  /// works without a compiler as far as `obtain` does.
  Explanation explain(const source::Instantiation& unit, const ObtainOptions& options);
  /// Compiles without store, flight or memory; for --emit ptx, kiln audit and benches.
  compile::Compiled compile_alone(const source::Instantiation& unit, bool want_ptx,
                                  compile::Urgency urgency = compile::Urgency::caller);
  /// What it would be looked for under; from the files as they are now.
  compile::MadeKey key_of(const source::Instantiation& unit);

  /// Where the choice among the `free` parameters' candidates is kept for a device; `unit` is of the call
  /// without one. Throws as key_of.
  compile::MadeChoiceKey choice_key(const source::Instantiation& unit, const std::vector<std::size_t>& free,
                                    const std::string& device);
  /// The same of files that were read before.
  compile::MadeChoiceKey choice_key(const source::Instantiation& unit, const std::vector<std::size_t>& free,
                                    const std::string& device, const Prepared& prepared);
  /// Reads the files of an instantiation; what other processes remember of the toolkit's is believed.
  Prepared read_files(const source::Instantiation& unit);
  struct FoundChoice {
    Key key;
    compile::TunedChoice choice;
    cache::Record record;
    std::string directory;  ///< of the store that has it
  };
  struct ChoiceAnswer {
    std::optional<FoundChoice> found;
    bool sure = true;  ///< false: a store could not be read in time, and may have one
  };
  /// In the writable store, in what else is read in its place, in the layers. Whatever is damaged is none.
  ChoiceAnswer find_choice(const compile::MadeChoiceKey& made, base::Deadline deadline);
  /// False for a second after a store could not be read: nobody need wait for the next to fail.
  bool may_ask_for_choices() const noexcept {
    return base::Clock::now().time_since_epoch().count() >= choices_rest_until_;
  }
  /// That of a choice by its key alone (no use of it), for copying it.
  std::optional<cache::Record> choice_record(const Key& key);
  /// Choices are looked for in these alone, in order. REQUIRES: none was asked for yet.
  void use_choices_of(std::vector<std::shared_ptr<cache::Store>> stores);

  const toolchain::Toolkit& toolkit();
  /// Opens the compiler in the background when this process will soon need it: nothing was ever cached where
  /// it looks.
  void expect_misses();
  /// Null when no place for one was found.
  std::shared_ptr<cache::Store> store();
  /// The read-only stores that are asked before `store`, in order. Opens none of them twice.
  const std::vector<std::shared_ptr<cache::Store>>& layers();
  /// `store` and nothing else: no layers, no step down, nothing added to its tally. REQUIRES: nothing was
  /// asked for yet.
  void use_only(std::shared_ptr<cache::Store> store);
  /// `places` (none: {}) beside the configured layers, nothing added to a tally: for commands that only look.
  /// REQUIRES: nothing was asked for yet.
  void use_places(Places places);
  Counters& counters() noexcept { return counters_; }
  compile::WorkerPool& workers() noexcept { return workers_; }
  /// Who compiles what on this host; empty without a flight file.
  std::vector<cache::BoardEntry> board();
  const Config& config() const noexcept { return config_; }

 private:
  struct Unit;  // an instantiation with its closure and key
  struct Flight;
  struct State;
  enum class Lasting { no, pause, until_changed };  ///< how long an error is remembered
  /// After a fault of the machine rather than of the source.
  struct Rest {
    std::exception_ptr error;
    base::Clock::time_point until;
    base::Clock::duration pause{};
  };
  const Places& places();
  Obtained obtain_image(const source::Instantiation& unit, const ObtainOptions& options);
  std::string shims() const;
  Unit prepare(const source::Instantiation& unit, source::Trust trust);
  void warm_up();
  std::optional<Obtained> find(const Unit& unit, const ObtainOptions& options);
  std::optional<Obtained> from_memory(const Key& key, const ObtainOptions& options);
  void throw_remembered(const State& state, const Key& key);
  std::optional<Obtained> from_disk(const Unit& unit, const ObtainOptions& options, bool count_misses);
  std::optional<Obtained> from_store(cache::Store& store, const Unit& unit, base::Deadline deadline,
                                     cache::Miss& miss);
  std::optional<Obtained> from_foreign(const Unit& unit, const ObtainOptions& options);
  Obtained fly(std::shared_ptr<const Unit> unit, const ObtainOptions& options);
  struct FromTier;
  FromTier ask_tier(const Unit& unit, const ObtainOptions& options, const Flight& flight);
  std::optional<Obtained> from_tier_foreign(fleet::Tier& tier, const Unit& unit, const ObtainOptions& options,
                                            cache::Record& record);
  Publication::Afterwards to_tier(const Unit& unit, std::shared_ptr<fleet::HeldLease> lease,
                                  const Obtained& obtained, const ObtainOptions& options);
  bool takes_foreign(const Unit& unit, const ObtainOptions& options);
  bool is_of_chosen_toolchain(const Key& key) const;
  /// Null when the record may not serve this unit; else its image is moved out of it.
  std::shared_ptr<const StoredImage> as_foreign(const Unit& unit, const Key& key,
                                                cache::Record& record) const;
  static std::optional<Obtained> best_foreign(std::vector<Obtained> candidates);
  void take_off(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept;
  void run_flight(const Unit& unit, const ObtainOptions& options, Flight& flight) noexcept;
  Obtained compile_now(const Unit& unit, cache::Record& record, const std::atomic<compile::Urgency>& urgency);
  std::shared_ptr<cache::Flight> take_host_lock(const Unit& unit);
  void tell(int32_t kind, const Unit& unit, const Events::Fields& fields = {}) const;
  void land(const Unit& unit, Flight& flight, const Obtained& obtained) noexcept;
  void crash(const Unit& unit, Flight& flight, std::exception_ptr error, Lasting lasts) noexcept;
  static Lasting lasting(const source::Closure& closure, const std::exception_ptr& error) noexcept;
  void publish(const Unit& unit, const Key& key, cache::Record record, const std::string& unpublishable,
               std::shared_ptr<cache::Flight> host, WhenFull when_full,
               Publication::Afterwards afterwards) noexcept;
  void remember(const std::shared_ptr<const StoredImage>& image);
  std::shared_ptr<cache::FlightFile> flight_file();
  std::vector<std::shared_ptr<cache::Store>> choice_stores();

  const Config config_;
  const std::shared_ptr<Counters> shared_counters_ = std::make_shared<Counters>();
  Counters& counters_ = *shared_counters_;
  const Events events_;
  std::atomic<bool> leaving_{false};  // ends waits for other processes' flights
  // Kept by a forked child as far as they were made: stores and flight files know whose they are.
  base::Lazy<toolchain::Toolkit> toolkit_;
  base::Lazy<Places> places_;
  base::Lazy<std::vector<std::shared_ptr<cache::Store>>> layers_, choice_stores_;
  base::Lazy<std::shared_ptr<cache::FlightFile>> flight_file_;
  Lifetime lifetime_{*shared_counters_};  // goes after the publisher, to count its last puts
  base::Lazy<std::shared_ptr<fleet::Tier>> tier_;
  /// Declared before the publisher, whose thread may go on after it.
  struct Told {
    explicit Told(Events listener) : events(std::make_shared<LastingEvents>(listener)) {}
    ~Told() { events->end(); }
    std::shared_ptr<LastingEvents> events;
  } told_{events_};
  Publisher publisher_{shared_counters_};
  std::atomic<bool> choices_patient_{true};  // false: the last one to ask waited in vain
  std::atomic<base::Clock::rep> choices_rest_until_{0};
  std::atomic<bool> store_was_there_{false};  // the place for one was looked at, and has one
  source::ScanCache scans_;
  HostSlots slots_;
  compile::PrecompiledHeaders headers_;  // before the pool, which drops them
  compile::WorkerPool workers_;

  /// A forked child starts with its own: it has none of the threads that hold the mutex or land a flight.
  struct State {
    std::mutex mutex;  // guards what follows
    std::map<Key, std::shared_ptr<const StoredImage>> memory;
    std::deque<Key> memory_order;
    std::size_t memory_bytes = 0;
    std::map<Key, std::exception_ptr> refused;
    std::map<Key, Rest> resting;
    std::map<Key, std::shared_ptr<Flight>> flights;
    int running = 0;
    std::condition_variable landed;
  };
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
