// The table of ready kernels: readers during writes, every number of parameters, replacing and clearing.
#include "runtime/kernels/ready_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace kiln::runtime {
namespace {

/// A distinct pointer for each key. The table never follows its pointers.
const LoadedKernel* kernel_of(std::uint64_t key) {
  return reinterpret_cast<const LoadedKernel*>((key + 1) * 64);
}

PackedParameters pack(std::initializer_list<std::int64_t> values) {
  PackedParameters out;
  out.set(values.begin(), static_cast<std::uint32_t>(values.size()));
  return out;
}

/// `count` parameters, of which only the last depends on the key.
PackedParameters key_of(std::uint64_t key, std::uint32_t count = 3) {
  std::int64_t values[source::kMaxParameters];
  std::fill_n(values, count, 7);
  values[count - 1] = static_cast<std::int64_t>(key);
  PackedParameters out;
  out.set(values, count);
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
  table.insert(pack({5, PackedParameters::kUnset, PackedParameters::kUnset}), kernel_of(1));
  EXPECT_EQ(table.find(pack({5})), kernel_of(1));
  EXPECT_EQ(table.find(pack({PackedParameters::kUnset, 5})), nullptr) << "one before a given one stays";
  table.insert(pack({PackedParameters::kUnset}), kernel_of(2));
  EXPECT_EQ(table.find(pack({})), kernel_of(2));
}

TEST(ReadyTable, NumbersOfEverySizeAndUnsetOnesAreKeptApart) {
  constexpr std::int64_t kUnset = PackedParameters::kUnset, kLow = INT32_MIN, kHigh = INT32_MAX;
  const PackedParameters keys[] = {
      pack({1, kUnset, 3}),      pack({1, kLow, 3}),      pack({1, 0, 3}),
      pack({1, kHigh + 1, 3}),   pack({1, kLow - 1, 3}),  pack({1, kLow - (1LL << 32), 3}),
      pack({1, kUnset, kLow}),   pack({1, kLow, kLow}),   pack({1, kUnset, kHigh + 1}),
      pack({1, 0, 0, 0, 3, 0}),  pack({INT64_MAX}),       pack({INT64_MIN + 1}),
      pack({kUnset, kUnset, 3}), pack({kUnset, kLow, 3}), pack({1LL << 32 | 1})};
  ReadyTable table;
  for (std::uint64_t i = 0; i < std::size(keys); ++i)
    EXPECT_EQ(table.insert(keys[i], kernel_of(i)), kernel_of(i)) << i;
  for (std::uint64_t i = 0; i < std::size(keys); ++i) EXPECT_EQ(table.find(keys[i]), kernel_of(i)) << i;
}

TEST(ReadyTable, TheShortWayFindsWhatTheLongOneFinds) {
  ReadyTable table;
  for (std::uint32_t count = 1; count <= 6; ++count) table.insert(key_of(9, count), kernel_of(count));
  table.insert(pack({}), kernel_of(0));
  EXPECT_EQ(table.find_few(pack({})), kernel_of(0));
  for (std::uint32_t count = 1; count <= 6; ++count) {
    const LoadedKernel* const found = table.find_few(key_of(9, count));
    EXPECT_EQ(found, count <= ReadyTable::kFew ? kernel_of(count) : nullptr) << count;
    EXPECT_EQ(table.find(key_of(9, count)), kernel_of(count));
    EXPECT_EQ(table.find_few(key_of(8, count)), nullptr);
  }
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

// Up to 4 parameters lie in the table's slot itself, more lie outside it.
INSTANTIATE_TEST_SUITE_P(Counts, ReadyTableOf,
                         ::testing::Values(1u, 4u, 5u, 12u, std::uint32_t{source::kMaxParameters}),
                         ::testing::PrintToStringParamName());

/// Counts of the errors that readers found. An assertion in a reader's thread would hide later errors.
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
          const std::uint64_t key = random % (kKeys + kKeys / 10);  // some keys are never inserted
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
      if (found < 64 || found % 64 || found < last) ++wrong;  // kernels are replaced in rising order
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
