// The files of captured directories that go with the records that name them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/kiln/caches/space/blobs.hpp"

namespace kiln::cli {

struct UnnamedFiles {
  std::vector<const StoredBlob*> files;  ///< blobs of `scan` in its directory
  std::uint64_t bytes = 0;               ///< of their records
  std::string unreadable;  ///< a record that stays and cannot be read, so all files stay; else empty
};

/// True for a space with records of captured directories.
bool is_of_directories(const std::string& space);

/// The keys of the files that these records name. Throws as BundleStores does.
std::set<std::string> files_named_by(const std::vector<const StoredBlob*>& records,
                                     const runtime::Config& config);

/// The files among `going` in the store of `scan` that no record of any store names. Records of `gone` do not count.
/// `gone` points into `scan`, which is of every space and must outlive the result. Throws as BundleStores does.
UnnamedFiles unnamed_files(const runtime::Config& config, const BlobScan& scan,
                           const std::set<std::string>& going, const std::vector<const StoredBlob*>& gone);

}  // namespace kiln::cli
