// moe_align and its reference against a stable sort on the CPU, exactly.
#include <algorithm>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::moe_align {
namespace {

struct Aligned {
  std::vector<int> sorted, experts, inverse;
  int total = 0;
};

/// The expected result by the manifest's definition; `map` may be empty.
Aligned align(const std::vector<int>& ids, int experts, int block, int capacity, const std::vector<int>& map,
              bool local_only) {
  const int n = static_cast<int>(ids.size());
  Aligned out{std::vector<int>(static_cast<std::size_t>(capacity), n),
              std::vector<int>(static_cast<std::size_t>(capacity / block), -1),
              std::vector<int>(ids.size(), -1)};
  for (int e = 0; e < experts; ++e) {
    if (local_only && map[static_cast<std::size_t>(e)] < 0) continue;
    const int begin = out.total;
    int place = begin;
    for (int i = 0; i < n; ++i) {
      if (ids[static_cast<std::size_t>(i)] != e) continue;
      out.inverse[static_cast<std::size_t>(i)] = place;
      out.sorted[static_cast<std::size_t>(place++)] = i;
    }
    out.total += (place - begin + block - 1) / block * block;
    for (int b = begin / block; b < out.total / block; ++b)
      out.experts[static_cast<std::size_t>(b)] = map.empty() ? e : map[static_cast<std::size_t>(e)];
  }
  return out;
}

class MoeAlignTest : public KernelTest {
 protected:
  void expect_right(int tokens, int k, int experts, int block, bool mapped, bool local_only) {
    const std::string what = std::to_string(tokens) + " tokens, k " + std::to_string(k) + ", " +
                             std::to_string(experts) + " experts, blocks of " + std::to_string(block) +
                             (mapped ? ", mapped" : "") + (local_only ? ", local only" : "");
    const int n = tokens * k;
    const int capacity = (n + std::min(n, experts) * (block - 1) + block - 1) / block * block;
    std::mt19937 random(13);
    std::vector<int> ids, map;
    for (int i = 0; i < n; ++i)
      ids.push_back(static_cast<int>(random() % static_cast<unsigned>(experts + 2)) - 1);
    for (int e = 0; mapped && e < experts; ++e) map.push_back(e % 3 == 0 ? e / 3 : -1);

    const Pair kernels =
        get("moe_align", {{"ID", Dtype::i32}, {"E", experts}, {"BLOCK", block}, {"LOCAL_ONLY", local_only}});
    const DeviceArray in(*driver_, ids), map_in(*driver_, map.empty() ? std::vector<int>{0} : map);
    const auto sizes = {capacity, capacity / block, 1, n};
    std::vector<std::vector<int>> results;
    std::vector<std::vector<double>> reference;
    {
      std::vector<std::unique_ptr<DeviceArray<int>>> out;
      std::vector<std::unique_ptr<DeviceArray<double>>> out_double;
      for (const int size : sizes) {
        const auto count = static_cast<std::size_t>(size);
        out.push_back(std::make_unique<DeviceArray<int>>(*driver_, std::vector<int>(count, -7)));
        out_double.push_back(std::make_unique<DeviceArray<double>>(*driver_, std::vector<double>(count, -7)));
      }
      void* local = mapped ? pointer(map_in) : null();
      launch(*kernels.reference, pointer(*out_double[0]), pointer(*out_double[1]), pointer(*out_double[2]),
             pointer(*out_double[3]), pointer(in), tokens, k, k, capacity, local);
      launch(*kernels.kernel, pointer(*out[0]), pointer(*out[1]), pointer(*out[2]), pointer(*out[3]),
             pointer(in), tokens, k, k, capacity, local);
      for (const auto& array : out) results.push_back(array->host());
      for (const auto& array : out_double) reference.push_back(array->host());
    }
    const Aligned want = align(ids, experts, block, capacity, map, local_only);
    const std::vector<std::vector<int>> right = {want.sorted, want.experts, {want.total}, want.inverse};
    for (std::size_t i = 0; i < right.size(); ++i) {
      EXPECT_TRUE(results[i] == right[i]) << what << ", output " << i;
      EXPECT_TRUE(std::vector<int>(reference[i].begin(), reference[i].end()) == right[i])
          << what << ", output " << i << " of the reference";
    }
  }
};

TEST_F(MoeAlignTest, AgreesWithTheCpuAtEverySize) {
  for (const int tokens : {1, 7, 64, 500, 2049}) {
    expect_right(tokens, 8, 256, 64, false, false);
    expect_right(tokens, 2, 8, 16, false, false);
    expect_right(tokens, 6, 97, 1, false, false);
    expect_right(tokens, 1, 1, 128, false, false);
  }
}

TEST_F(MoeAlignTest, MapsExpertsAndLeavesOutThoseThatAreNotLocal) {
  for (const int tokens : {1, 64, 2049}) {
    expect_right(tokens, 8, 256, 64, true, false);
    expect_right(tokens, 8, 256, 64, true, true);
  }
}

}  // namespace
}  // namespace kiln::testing::moe_align
