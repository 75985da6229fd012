// Blobs and trees of files for the tests of `kiln caches`.
#pragma once

#include <sys/stat.h>

#include <filesystem>

#include "base/hash.hpp"
#include "cache/blob/blob.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {

class CachesCommand : public StoreCommand {
 protected:
  void put(const cache::BlobName& name, const std::string& content, const std::string& directory = {}) const {
    const auto store = open(directory);
    cache::each_record(name, content, [&](cache::Record&& record) {
      const auto done = store->put(record, store->put_wait(), cache::Existing::replaced);
      ASSERT_TRUE(done.put == cache::Put::stored || done.put == cache::Put::present) << done.detail;
    });
  }
};

}  // namespace kiln::test
