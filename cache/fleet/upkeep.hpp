// The seam of remote tiers, second part: what commands ask of the servers themselves.
//
// The Tier asks for entries and gets them from whichever server has them (cache/fleet/backend.hpp). A command
// that looks after the tier also asks each server how it is, walks over what lies on it, and erases values.
// Every backend answers these questions in its own way, and no command knows how.
//
// The verbs of one server: look, walk, entry, has_entry, rows, erase_rows, erase, reach. The verbs of the
// tier: servers, reach, missed, forget. Bytes that come from a server are not verified: the command decides
// what they mean and whether to believe them. A command is more patient than a node: it waits until the name
// of a server has been resolved. A fault of a server is an answer and never an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/fleet/backend.hpp"

namespace kiln::fleet {

/// A server's description of itself. With a fault it did not answer, and only its name is known.
struct ServerLook : Outcome {
  std::string name{};               ///< "host:port", or a Unix socket's path
  double round_trip_ms = 0;         ///< the shortest of a few
  std::string version{}, policy{};  ///< empty: the server does not say; policy: of a full server
  std::optional<std::uint64_t> keys{}, used_bytes{}, max_bytes{}, evicted{}, clients{};
  std::optional<std::uint64_t> missing{};  ///< rows that nodes reported
  std::optional<bool> persists{};          ///< the server writes to a disk
  std::vector<std::string> advice{};       ///< settings of the server that ought to differ, a sentence each
};

/// A value of the tier on one server, as a walk finds it.
struct StoredValue {
  enum class Kind : std::uint8_t {
    entry,
    rows,  ///< the toolchains of one specialisation
    lease,
    missed_rows,    ///< all of them
    unknown,        ///< of this version of kiln's names, and of no kind that is known here
    other_version,  ///< of another version of kiln's names
  };
  Kind kind = Kind::unknown;
  Key key{};           ///< of an entry and a lease; of rows the specialisation alone
  std::string name{};  ///< what the server calls the value
};

/// How many values or rows a server has erased. With a fault the number is 0.
struct Erased : Outcome {
  std::uint64_t count = 0;
};

/// Reads and erases what lies on one server of a tier, whichever server ought to have it. Thread-safe. It may
/// be used as long as its backend exists.
class ServerUpkeep {
 public:
  enum class Walk : std::uint8_t { entries, everything };
  using Page = std::function<void(std::span<const StoredValue> values)>;

  virtual ~ServerUpkeep() = default;

  /// Asks for nothing, and waits until the server's name has been resolved.
  virtual Outcome reach() = 0;
  virtual ServerLook look() = 0;
  /// Calls `each` with one page after the other of kiln's values, in no order, some values perhaps twice.
  /// Values that other programs keep on the server are not shown. Returns the fault that ended the walk.
  virtual Outcome walk(Walk what, const Page& each) = 0;
  virtual Value entry(const Key& key) = 0;
  /// Nothing when the server does not say.
  virtual std::optional<bool> has_entry(const Key& key) = 0;
  /// Nothing when a value lies there that cannot be rows.
  virtual std::optional<Rows> rows(const Digest& specialisation) = 0;
  /// Erases the rows of some toolchains, which are named as `rows` names them.
  virtual Erased erase_rows(const Digest& specialisation, std::span<const std::string> toolchains) = 0;
  virtual Erased erase(const StoredValue& value) = 0;
};

/// A row that a node reported (Backend::report). Anybody who may write to the server may have written it.
struct MissedRow {
  std::string id{};                   ///< the server's name for it
  std::optional<std::string> text{};  ///< nothing: not of the form in which nodes report
  std::uint64_t bytes = 0;            ///< sent by the server for the row
};

/// The next reported rows, oldest first. A page without rows and without a fault is the end. Rows that came
/// before a fault are in the page.
struct MissedPage : Outcome {
  std::vector<MissedRow> rows{};
};

/// Thread-safe. Belongs to its backend.
class Upkeep {
 public:
  virtual ~Upkeep() = default;

  /// All servers of the tier, those that are down as well. May ask the servers for the others' names.
  virtual std::vector<std::unique_ptr<ServerUpkeep>> servers() = 0;
  /// Waits until the name of the server that has this specialisation has been resolved for the backend.
  virtual Outcome reach(const Digest& specialisation) = 0;
  /// Reads up to `most` reported rows, beginning after the row whose id is `after`; empty: with the first row.
  virtual MissedPage missed(const std::string& after, std::size_t most) = 0;
  /// Says how the operator can remove all reported rows: the beginning of a sentence that ends in "removes
  /// them". Empty when there is nothing to say.
  virtual std::string missed_removal() const = 0;
  /// Takes reported rows away. Rows that are already gone are no fault.
  virtual Outcome forget(std::span<const std::string> ids) = 0;
};

}  // namespace kiln::fleet
