// The command beside a store that the test fills itself, without a compiler.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.hpp"
#include "cache/lock/gate.hpp"
#include "cache/store/store.hpp"
#include "tests/cache/fixture.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

class StoreCommand : public KilnCommand {
 protected:
  using Store = cache::Store;
  /// Opens the store. The directory itself must belong to this user alone, not only its store.
  std::shared_ptr<Store> open(const std::string& directory = {}) const {
    cache::StoreOptions options;
    options.directory = directory.empty() ? cache() : directory;
    return Store::open(options);
  }
  std::string data_file() const { return cache() + "/v1/data.mdb"; }
  /// Puts entries 0 to count - 1, about 9 KB each.
  void fill(std::uint32_t count, const std::string& directory = {}) const {
    const auto store = open(directory);
    for (std::uint32_t number = 0; number < count; ++number)
      ASSERT_EQ(store->put(cache::test::record_of(number, 9000)).put, cache::Put::stored);
  }
  std::string contents() const { return base::read_file(data_file())->bytes; }
  /// Writes into the existing file, like a bad disk.
  void overwrite(const std::string& bytes) const {
    const base::Fd fd(::open(data_file().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  /// Flips a bit in the image of an entry.
  void damage_image(std::uint32_t number) const {
    std::string bytes = contents();
    const std::string image = cache::test::record_of(number, 9000).image.substr(5000, 64);
    const std::size_t at = bytes.find(image);
    ASSERT_NE(at, std::string::npos);
    bytes[at] ^= 1;
    overwrite(bytes);
  }
  /// Flips a bit in the facts of an entry, which are part of its head.
  void damage_head(std::uint32_t number) const {
    std::string bytes = contents();
    const std::size_t at = bytes.find("facts of " + std::to_string(number) + "key text");
    ASSERT_NE(at, std::string::npos);
    bytes[at] ^= 1;
    overwrite(bytes);
  }
  static bool exists(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0;
  }
  /// While this lives, no writer gets through the gate.
  struct HeldGate {
    explicit HeldGate(const std::string& file) : fd(::open(file.c_str(), O_RDWR | O_CLOEXEC)) {
      lock = cache::RangeLock::acquire(fd.get(), cache::kGateOffset + 2, cache::RangeLock::Mode::exclusive,
                                       base::Deadline::after(std::chrono::seconds(5)));
      EXPECT_TRUE(lock);
    }
    base::Fd fd;
    std::optional<cache::RangeLock> lock;
  };
};

}  // namespace kiln::test
