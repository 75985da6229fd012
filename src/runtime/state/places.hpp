// The places of stores. The writable store steps down to another place when there is no HOME, or its place
// lies on a read-only root or a network filesystem, or belongs to somebody else. Read-only layers are asked
// before it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// A place where the writable store may lie.
struct Candidate {
  enum class Kind {
    configured,  ///< the setting cache_dir
    user,        ///< $XDG_CACHE_HOME/kiln, ~/.cache/kiln
    temporary    ///< kiln-<uid> in a directory that everybody writes to
  };
  std::string directory;  ///< absolute
  Kind kind = Kind::configured;
  std::string required{};  ///< a directory that must exist: a missing HOME is not made
};

/// The configured directory, else $XDG_CACHE_HOME/kiln, else ~/.cache/kiln. The steps down follow:
/// $TMPDIR/kiln-<uid>, /var/tmp/kiln-<uid>. A variable that is no absolute path counts as not set.
/// docs/internals/store.md ("Places and layers") has the whole rule.
std::vector<Candidate> store_candidates(const Config& config);

/// The directory that the candidate's store has or would have: the candidate's own, or the private one inside
/// it (cache/place/directory.hpp). Creates nothing. Throws an Error(io) that says why no store can be there.
std::string directory_of(const Candidate& candidate);

struct Places {
  std::shared_ptr<cache::Store> writable;  ///< null: work in memory
  std::shared_ptr<cache::Store> readable;  ///< mostly null; read as a layer is, before `writable`
};

/// Opens the first candidate that can be opened. One warning lists the steps down and says what to do. A
/// store that may be read and not written (a read-only root with a warm cache) is opened, too, as `readable`.
/// Throws only for lack of memory.
Places open_store(const Config& config);

/// True when the candidate has a store that may be read and not written: `open_store` reads it as a layer.
/// False for a temporary place.
bool only_readable(const Candidate& candidate) noexcept;

/// Opens the first candidate, and creates it if need be. There is no step down. Throws an Error(io) that says
/// why it cannot be written.
std::shared_ptr<cache::Store> open_configured_store(const Config& config);

/// The directory of the writable store that `open_store` would open; "" when there is no such store yet.
/// Opens and creates nothing.
std::string existing_store(const Config& config);

/// True when no layers are configured and the first usable candidate has no store, so that everything will be
/// a miss. Opens and creates nothing.
bool nothing_cached(const Config& config) noexcept;

/// True when any candidate has a store. Opens and creates nothing.
bool any_store(const Config& config) noexcept;

/// Opens the layers of `cache_layers`, in order. A layer is left out with one warning when it is missing,
/// cannot be read, may be written by others, or belongs to anyone but root and this user. Throws only for
/// lack of memory.
std::vector<std::shared_ptr<cache::Store>> open_layers(const Config& config);
/// Opens one layer, whose path must be absolute. Throws Error(io).
std::shared_ptr<cache::Store> open_layer(const std::string& directory);

/// Opens `directory`, which may be relative, as the writable store of `kiln prewarm --layer`. Creates it with
/// mode 0755. There is no step down. Throws Error(io).
std::shared_ptr<cache::Store> create_layer(const std::string& directory);

}  // namespace kiln::runtime
