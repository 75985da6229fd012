// Where stores are: the writable one, which steps down when a machine has no HOME, a read-only root, a
// network filesystem or somebody else's directory, and the read-only layers that are asked before it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// A place that the writable store may have.
struct Candidate {
  enum class Kind {
    configured,  ///< KILN_CACHE_DIR and the like
    user,        ///< $XDG_CACHE_HOME/kiln, ~/.cache/kiln
    temporary    ///< kiln-<uid> in a directory that everybody writes to
  };
  std::string directory;  ///< absolute
  Kind kind = Kind::configured;
  std::string required{};  ///< must exist already: a HOME that is not there is not made
};

/// The configured directory, else $XDG_CACHE_HOME/kiln, ~/.cache/kiln (DESIGN 8), then the steps down:
/// $TMPDIR/kiln-<uid>, /var/tmp/kiln-<uid>. A variable that is no absolute path counts as not set.
std::vector<Candidate> store_candidates(const Config& config);

/// The directory that the candidate's store has or would have: its own, or the private one inside
/// (cache/place/directory.hpp). Creates nothing. Throws Error(io) that says why it can have none.
std::string directory_of(const Candidate& candidate);

struct Places {
  std::shared_ptr<cache::Store> writable;  ///< null: work in memory
  std::shared_ptr<cache::Store> readable;  ///< mostly null; a layer, asked before `writable`
};

/// The first candidate that opens. Each step down is part of one warning that says what to do. A store that
/// is there, may be read and may not be written (a read-only root with a warm cache) is read as a layer is,
/// beside the place that was stepped down to. Never throws but for memory.
Places open_store(const Config& config);

/// Its store is there and may be read, but not written: what `open_store` reads as a layer.
bool only_readable(const Candidate& candidate) noexcept;

/// The first candidate, made if need be, without a step down. Throws Error(io) that says why it cannot be
/// written and what to do.
std::shared_ptr<cache::Store> open_configured_store(const Config& config);

/// The directory of the writable store that `open_store` would open, when it is there; else nothing. Opens
/// and creates nothing.
std::string existing_store(const Config& config);

/// No layers are configured, and the first place that the writable store may have holds none: everything will
/// be a miss. Opens and creates nothing.
bool nothing_cached(const Config& config) noexcept;

/// Some place that the writable store may have holds one. Opens and creates nothing.
bool any_store(const Config& config) noexcept;

/// The layers of `cache_layers`, in order. One that is missing, that others may write, that belongs to
/// somebody else or cannot be read is left out with one warning. Never throws but for memory.
std::vector<std::shared_ptr<cache::Store>> open_layers(const Config& config);
/// One of them. Throws Error(io).
std::shared_ptr<cache::Store> open_layer(const std::string& directory);

/// `directory` as the writable store of `kiln prewarm --layer`, made 0755; no step down. Throws Error(io).
std::shared_ptr<cache::Store> create_layer(const std::string& directory);

}  // namespace kiln::runtime
