// The blobs of the layers and stores, as `kiln caches` shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/view.hpp"

namespace kiln::cli {

struct StoredBlob {
  std::string space, compatibility, key;  ///< the key may be any bytes
  std::uint64_t content_bytes = 0;
  std::uint64_t stored_bytes = 0;           ///< of its record, and of the records of its parts
  std::uint64_t last_used_s = 0, uses = 0;  ///< as in cache::Entry
  std::string directory;                    ///< of the store
  bool whole = false;                       ///< all its parts are in the same store
};

/// How many records of one kind there are, and their bytes.
struct RecordSum {
  std::uint64_t count = 0, stored_bytes = 0;
};

struct BlobScan {
  std::vector<StoredBlob> blobs;    ///< sorted by space, compatibility and key
  RecordSum kernels, choices;       ///< the other records; only when every space was wanted
  std::uint64_t unreadable = 0;     ///< records with damaged heads
  std::uint64_t other_version = 0;  ///< blobs that another version of kiln wrote
  std::string directory;            ///< where the writable store is, or would be made
};

/// Reads the heads of the layers and stores in the order of a lookup. A blob that several stores have is the
/// first store's. `space` empty: every space. Creates nothing. Throws Error, Damaged
/// (cache/store/file/pages.hpp).
BlobScan scan_blobs(const runtime::Config& config, const std::string& space = {});

/// The space with the records of directories that have no profile.
inline constexpr const char* kDirectories = "dir";

/// The blobs that a command line names.
struct NamedBlobs {
  std::string space;
  std::string key;  ///< of a captured directory; empty: every blob of the space
  bool has(const StoredBlob& blob) const { return blob.space == space && (key.empty() || blob.key == key); }
};
/// `name` is a space, else a profile, whose space is "dir." and its name, else the key of a directory that was
/// captured without a profile. Throws Error(invalid_argument), with the names that there are, for any other name.
NamedBlobs blobs_named(const BlobScan& scan, const std::string& name);

/// A compatibility on one line, for tables: line ends become "; ", and other control characters
/// are escaped.
std::string one_line(const std::string& compatibility);

/// "3h", or "-" for a time that is not known.
std::string age_of(std::uint64_t used_s);

/// Ends a command that listed records: kDone, or kDamaged after a message on stderr.
int exit_of(const BlobScan& scan);

}  // namespace kiln::cli
