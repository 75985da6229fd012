// The state that `kiln top` shows at one moment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/flight/activity.hpp"
#include "runtime/config/config.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/spaces.hpp"

namespace kiln::cli {

struct TopRow {
  enum class State {
    compiling,
    queued,       ///< on the board, and still waiting for its compile slot
    waiting,      ///< waits for another process's compile of the same key
    fleet,        ///< waits for another node's compile of the same key
    stopped,      ///< compiling, by a process that is stopped (SIGSTOP, a debugger)
    left_behind,  ///< its process was killed
    holding,      ///< holds a key's lock without an entry on the board
    writing       ///< holds the gate of writers
  };
  State state = State::compiling;
  std::optional<double> seconds;  ///< how long so far; nothing: not known
  std::int64_t since_s = 0;       ///< start as unix time; 0: not known
  std::int32_t pid = 0;           ///< 0: not known, see `process`
  std::string host;
  bool same_namespace = false;  ///< the pid is of this namespace
  std::string process;          ///< "4711 (engine)", "node7/12(ns)", "a process that is not seen from here"
  std::string subject;          ///< the specialisation compiled or waited for, or the lock held
  std::string key;              ///< hex; empty when the row has no key
};
std::string_view name_of(TopRow::State state) noexcept;

struct TopFinished {
  std::string subject, key, process;
  cache::FlightState end = cache::FlightState::published;
  double seconds = 0, ago_s = 0;
};

/// A space of blobs of another JIT compiler.
struct TopSpace {
  std::string name;
  SpaceCounts counts;                     ///< since the store was made
  std::optional<double> hits_per_minute;  ///< since the first snapshot of a series
};

struct TopSnapshot {
  std::string directory;
  std::int64_t taken_s = 0;
  std::vector<TopRow> rows;           ///< in the order of State, longest first
  std::vector<TopFinished> finished;  ///< most recent first
  std::vector<TopSpace> spaces;       ///< that processes have used, by name
  std::size_t slots_used = 0;
  int slots = 1, express_slots = 1;  ///< limits for a process with this configuration
  bool caller_waits = false;
  int cores = 1;
  std::optional<double> load;             ///< of the host, over a minute
  double compiles_per_minute = 0;         ///< compiles that ended within the last minute
  std::optional<double> hits_per_minute;  ///< since the first snapshot of a series
  std::vector<std::string> unseen;        ///< what could not be read, and why

  std::size_t count(TopRow::State state) const;
};

/// A series of snapshots of one store.
class TopSeries {
 public:
  explicit TopSeries(const runtime::Config& config);
  TopSnapshot take();

 private:
  std::uint64_t hits() const;
  std::vector<TopSpace> spaces(double minutes) const;
  const std::string directory_;
  const int cores_, slots_;
  const std::int64_t began_ms_;
  const std::uint64_t hits_before_;
  const std::map<std::string, SpaceCounts> spaces_before_;
  bool first_ = true;
};

Json json_of(const TopSnapshot& snapshot);

}  // namespace kiln::cli
