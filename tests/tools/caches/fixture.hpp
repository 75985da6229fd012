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
    cache::each_record(name, content, cache::kBlobPart, [&](cache::Record&& record) {
      const auto done = store->put(record, store->put_wait(), cache::Existing::replaced);
      ASSERT_TRUE(done.put == cache::Put::stored || done.put == cache::Put::present) << done.detail;
    });
  }

  /// Writes a file below path(directory), with the directories above it. Its time is long ago, so that a capture
  /// knows it again.
  void write_old(const std::string& name, const std::string& text, std::int64_t time = 1'700'000'000) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    write(name, text);
    const timespec times[] = {{time, 123}, {time, 123}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path(name).c_str(), times, 0), 0);
  }
  std::string scratch() const { return base::directory_of(path("x")); }
  std::string text_of(const std::string& name) const {
    const auto content = base::read_file(path(name));
    return content ? content->bytes : "(absent)";
  }
  nlohmann::json capture(const Arguments& more, const Environment& environment = {}) {
    return json_of("capture", more, environment);
  }
  nlohmann::json restore(const Arguments& more, const Environment& environment = {}) {
    return json_of("restore", more, environment);
  }
  /// Puts a list of files under the name that `restore dir --to` looks for.
  void plant(const std::string& list, const std::string& directory) {
    nlohmann::json asked = restore({"planted", "--to", directory});
    std::string compatibility = "kiln-dir 1\n";
    for (const std::string fact : asked["compatibility"]) compatibility += fact + '\n';
    put({"dir", compatibility, "planted"}, list);
  }
  /// No file of a restore is left in the directory.
  void expect_no_staging(const std::string& directory) const {
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".kiln-restore-")) << entry.path();
  }

 private:
  nlohmann::json json_of(const std::string& command, Arguments more, const Environment& environment) {
    more.insert(more.begin(), {"caches", command});
    more.push_back("--json");
    const Finished done = kiln(more, environment);
    EXPECT_TRUE(done.status == 0 || done.status == 3) << done.err;
    return done.json();
  }
};

}  // namespace kiln::test
