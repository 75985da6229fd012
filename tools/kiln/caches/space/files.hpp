// The files of captured directories that go with the records that name them.
#pragma once

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

/// The files in the store of `scan` that records of `gone` name, and that no other record of any store names.
/// `gone` points into `scan`, which is of every space and must outlive the result. Throws as BundleStores does.
UnnamedFiles unnamed_files(const runtime::Config& config, const BlobScan& scan,
                           const std::vector<const StoredBlob*>& gone);

}  // namespace kiln::cli
