// The vocabulary of the store's tests: keys, records whose content can be checked, files and child processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>

#include "base/file.hpp"
#include "cache/store/store.hpp"

namespace kiln::cache::test {

inline Key key_of(std::uint32_t specialisation, std::uint32_t toolchain = 0) {
  Key key;
  for (int i = 0; i < 4; ++i) {
    key.specialisation.bytes[i] = static_cast<std::uint8_t>(specialisation >> 8 * (3 - i));
    key.toolchain.bytes[i] = static_cast<std::uint8_t>(toolchain >> 8 * (3 - i));
  }
  return key;
}

/// A record whose content follows from `number` and `image_size` alone, so that any reader can check it.
inline Record record_of(std::uint32_t number, std::size_t image_size = 5000) {
  Record record{
      key_of(number), "facts of " + std::to_string(number), "key text of " + std::to_string(number), {}};
  std::uint32_t state = number * 2654435761u + 1;
  record.image.resize(image_size);
  for (char& byte : record.image) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return record;
}

/// A copy of the record under another key.
inline Record with_key(const Key& key, Record record) {
  record.key = key;
  return record;
}

/// True when both have the same content. Keys are not compared.
inline bool same(const Record& a, const Record& b) {
  return a.facts == b.facts && a.key_text == b.key_text && a.image == b.image;
}

inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(20)); }

class StoreFixture : public ::testing::Test {
 protected:
  std::string directory() const { return dir_.path() + "/store"; }
  std::string data_file() const { return directory() + "/v1/data.mdb"; }
  StoreOptions options() const {
    return {directory(), Access::read_write, std::uint64_t{1} << 30, put_wait_};
  }
  std::shared_ptr<Store> open() const { return Store::open(options()); }
  std::shared_ptr<Store> open_read_only() const {
    StoreOptions o = options();
    o.access = Access::read_only;
    return Store::open(o);
  }
  /// True when the store returns exactly record_of(number, image_size) for key_of(number).
  static bool holds(Store& store, std::uint32_t number, std::size_t image_size = 5000) {
    const Record expected = record_of(number, image_size);
    const auto got = store.get(key_of(number), expected.key_text, soon());
    return got.record && got.record->key == expected.key && same(*got.record, expected);
  }

  base::TempDir dir_{"kiln-store-test-"};
  std::chrono::milliseconds put_wait_{5000};
};

/// Runs `body` in a forked child. Returns the exit status, or 128 + the signal that ended the child.
inline int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kiln::cache::test
