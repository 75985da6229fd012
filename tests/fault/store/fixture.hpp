// Helpers for the disk rows of the fault matrix: child processes under faults, the results that
// they were promised, and the figures of a row.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "fault.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/sanitized.hpp"

namespace kiln::cache::test {

using kiln::testing::kSanitized;

using fault::Shared;

/// Prints a row of the matrix in docs/internals/faults.md.
inline void report(const std::string& fault,
                   std::initializer_list<std::pair<const char*, std::uint64_t>> figures) {
  std::printf("FIGURES %s:", fault.c_str());
  const char* separator = " ";
  for (const auto& [name, value] : figures)
    std::printf("%s%s %lu", std::exchange(separator, ", "), name, static_cast<unsigned long>(value));
  std::printf("\n");
}

/// A number from the environment, for soaks; `otherwise` when it is not set.
inline std::uint64_t configured(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Version v of key k has its own key text and content, so that each put
/// of a newer version replaces the older one.
inline Record version_of(std::uint32_t number, std::uint32_t version) {
  Record record = record_of(number * 1000 + version, 100 + (number * 7919 + version * 104729) % 30'000);
  record.key = key_of(number);
  record.key_text = std::to_string(version);
  return record;
}
/// The version that the record's key text names.
inline std::uint32_t version_in(const Record& record) {
  return static_cast<std::uint32_t>(std::strtoul(record.key_text.c_str(), nullptr, 10));
}

constexpr std::uint32_t kMaxNumbers = 1024;

/// Like in_child. An exception ends the child with 99; it must not run on as a second test program.
inline int child(const std::function<int()>& body) {
  return in_child([&body] {
    try {
      return body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "a child process: %s\n", error.what());
      return 99;
    }
  });
}

/// The results that processes got from puts of record_of(number, size).
struct Promises {
  std::atomic<bool> acknowledged[kMaxNumbers];
  std::atomic<std::uint64_t> puts, failed, full, reads, lost, wrong;
};

class FaultFixture : public StoreFixture {
 protected:
  static constexpr std::size_t kImage = 30'000;  // several adjacent pages, so that LMDB makes a vector write

  void TearDown() override { kiln_fault_arm(nullptr); }

  /// Puts a record and notes the result.
  Put put(Store& store, std::uint32_t number) const {
    const Put result = store.put(record_of(number, kImage)).put;
    if (result == Put::stored || result == Put::present) {
      promises_->acknowledged[number] = true;
      ++promises_->puts;
    } else {
      ++(result == Put::full ? promises_->full : promises_->failed);
    }
    return result;
  }

  /// Reads every number that was ever put. An acknowledged record must be there, and no record may be wrong.
  void check(Store& store) const {
    for (std::uint32_t number = 0; number < kMaxNumbers; ++number) {
      if (!promises_->acknowledged[number] && number >= attempted_) continue;
      const Record expected = record_of(number, kImage);
      const auto got = store.get(key_of(number), expected.key_text, soon());
      ++promises_->reads;
      if (got.record && !same(*got.record, expected)) ++promises_->wrong;
      if (!got.record && promises_->acknowledged[number]) ++promises_->lost;
    }
  }

  /// Runs check() in a process that shares nothing with this one. Returns
  /// 0, or 99 when it cannot open the store.
  int check_afresh() const {
    return child([this] {
      kiln_fault_arm(nullptr);
      const auto store = open();
      check(*store);
      return 0;
    });
  }

  /// Numbers below this were tried at least once. Records that were not
  /// acknowledged may be there, but must be right.
  std::uint32_t attempted_ = 64;
  Shared<Promises> promises_;
};

}  // namespace kiln::cache::test
