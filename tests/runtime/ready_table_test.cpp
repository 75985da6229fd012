// The table of ready kernels: readers beside a writer, parameters of every count, replacing and clearing.
#include "runtime/ready_table.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace kiln::runtime {
namespace {

/// The table only carries pointers: each key gets one of its own that nobody follows.
const LoadedKernel* kernel_of(std::uint64_t key) {
  return reinterpret_cast<const LoadedKernel*>((key + 1) * 64);
}

PackedParameters pack(std::initializer_list<std::int64_t> values) {
  PackedParameters out;
  for (const std::int64_t value : values) out.values[out.count++] = value;
  return out;
}

/// `count` parameters that differ from every other key's in the last one only.
PackedParameters key_of(std::uint64_t key, std::uint32_t count = 3) {
  PackedParameters out;
  out.count = count;
  for (std::uint32_t i = 0; i < count; ++i)
    out.values[i] = i + 1 == count ? static_cast<std::int64_t>(key) : 7;
  return out;
}

TEST(ReadyTable, AnEmptyOneHasNothing) {
  const ReadyTable table;
  EXPECT_EQ(table.find(pack({})), nullptr);
  EXPECT_EQ(table.find(pack({1})), nullptr);
}

TEST(ReadyTable, TheFirstKernelOfAKeyStays) {
  ReadyTable table;
  EXPECT_EQ(table.insert(pack({1, 2}), kernel_of(1)), kernel_of(1));
  EXPECT_EQ(table.insert(pack({1, 2}), kernel_of(2)), kernel_of(1));
  EXPECT_EQ(table.find(pack({1, 2})), kernel_of(1));
}

TEST(ReadyTable, KeysDifferByValuesOrderAndCount) {
  ReadyTable table;
  const PackedParameters keys[] = {pack({}),  pack({0}),  pack({0, 0}),    pack({1, 2}),     pack({2, 1}),
                                   pack({1}), pack({-1}), pack({1, 2, 0}), pack({1LL << 32})};
  for (std::uint64_t i = 0; i < std::size(keys); ++i) table.insert(keys[i], kernel_of(i));
  for (std::uint64_t i = 0; i < std::size(keys); ++i) EXPECT_EQ(table.find(keys[i]), kernel_of(i)) << i;
  EXPECT_EQ(table.find(pack({2})), nullptr);
}

TEST(ReadyTable, UnsetOnesAtTheEndAreTheSameAsNone) {
  ReadyTable table;
  PackedParameters given = pack({5, PackedParameters::kUnset, PackedParameters::kUnset});
  given.trim();
  EXPECT_EQ(given.count, 1u);
  table.insert(given, kernel_of(1));
  EXPECT_EQ(table.find(pack({5})), kernel_of(1));
  PackedParameters hole = pack({PackedParameters::kUnset, 5});
  hole.trim();
  EXPECT_EQ(hole.count, 2u) << "one before a given one stays";
  EXPECT_EQ(table.find(hole), nullptr);
  PackedParameters none = pack({PackedParameters::kUnset});
  none.trim();
  EXPECT_EQ(none.count, 0u);
}

TEST(ReadyTable, ReplacePutsAnotherKernelWhereOneIsAndAddsNone) {
  ReadyTable table;
  table.replace(pack({1}), kernel_of(1));
  EXPECT_EQ(table.find(pack({1})), nullptr);
  table.insert(pack({1}), kernel_of(1));
  table.insert(pack({2}), kernel_of(2));
  table.replace(pack({1}), kernel_of(3));
  EXPECT_EQ(table.find(pack({1})), kernel_of(3));
  EXPECT_EQ(table.find(pack({2})), kernel_of(2));
}

TEST(ReadyTable, ClearForgetsAndTheTableIsUsedAgain) {
  ReadyTable table;
  for (std::uint64_t i = 0; i < 1000; ++i) table.insert(key_of(i, 9), kernel_of(i));
  table.clear();
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(table.find(key_of(i, 9)), nullptr);
  EXPECT_EQ(table.insert(key_of(1, 9), kernel_of(2)), kernel_of(2));
  EXPECT_EQ(table.find(key_of(1, 9)), kernel_of(2));
}

class ReadyTableOf : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(ReadyTableOf, SoManyParametersFindsEveryKeyOfManyAndNoOther) {
  ReadyTable table;
  const std::uint32_t count = GetParam();
  constexpr std::uint64_t kKeys = 20'000;
  for (std::uint64_t i = 0; i < kKeys; ++i)
    ASSERT_EQ(table.insert(key_of(i, count), kernel_of(i)), kernel_of(i));
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(table.find(key_of(i, count)), kernel_of(i)) << i;
  for (std::uint64_t i = kKeys; i < 2 * kKeys; ++i) ASSERT_EQ(table.find(key_of(i, count)), nullptr) << i;
  table.replace(key_of(17, count), kernel_of(kKeys));
  EXPECT_EQ(table.find(key_of(17, count)), kernel_of(kKeys));
}

// 6 lie in the slot itself, more do not.
INSTANTIATE_TEST_SUITE_P(Counts, ReadyTableOf,
                         ::testing::Values(1u, 5u, 6u, 7u, 12u, std::uint32_t{source::kMaxParameters}),
                         ::testing::PrintToStringParamName());

/// What a reader found wrong; tests count it, since an assertion in a thread would hide the others.
struct Wrong {
  std::uint64_t kernels = 0, lost = 0, passes = 0;
};

class ReadersBesideAWriter : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(ReadersBesideAWriter, AlwaysFindWhatWasInsertedAndNeverAWrongKernel) {
  constexpr std::uint64_t kKeys = 100'000;
  constexpr int kReaders = 4;
  const std::uint32_t count = GetParam();
  ReadyTable table;
  std::atomic<std::uint64_t> inserted{0};
  std::vector<Wrong> wrong(kReaders);
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      Wrong& mine = wrong[static_cast<std::size_t>(r)];
      std::uint64_t random = 88172645463325252ull + static_cast<std::uint64_t>(r), there = 0;
      do {
        there = inserted.load(std::memory_order_acquire);
        for (int i = 0; i < 1000; ++i) {
          random ^= random << 13, random ^= random >> 7, random ^= random << 17;
          const std::uint64_t key = random % (kKeys + kKeys / 10);  // some are never inserted
          const LoadedKernel* const found = table.find(key_of(key, count));
          if (found && (found != kernel_of(key) || key >= kKeys)) ++mine.kernels;
          if (!found && key < there) ++mine.lost;
        }
        ++mine.passes;
      } while (there < kKeys);
    });
  }
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    table.insert(key_of(key, count), kernel_of(key));
    inserted.store(key + 1, std::memory_order_release);
  }
  for (auto& reader : readers) reader.join();
  for (const Wrong& one : wrong) {
    EXPECT_EQ(one.kernels, 0u);
    EXPECT_EQ(one.lost, 0u);
    EXPECT_GT(one.passes, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, ReadersBesideAWriter, ::testing::Values(3u, 8u),
                         ::testing::PrintToStringParamName());

TEST(ReadyTable, AReaderSeesTheOldOrTheNewKernelWhileOneIsReplaced) {
  ReadyTable table;
  table.insert(pack({1}), kernel_of(0));
  std::atomic<bool> stop{false};
  std::uint64_t wrong = 0, last = 0;
  std::thread reader([&] {
    while (!stop) {
      const auto found = reinterpret_cast<std::uintptr_t>(table.find(pack({1})));
      if (found < 64 || found % 64 || found < last) ++wrong;  // replaced in rising order
      last = found;
    }
  });
  for (std::uint64_t i = 1; i <= 200'000; ++i) table.replace(pack({1}), kernel_of(i));
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(table.find(pack({1})), kernel_of(200'000));
}

}  // namespace
}  // namespace kiln::runtime
