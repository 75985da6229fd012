// append_paged_kv and its reference against the CPU: rows are copied to the right
// places, and to no other place.
#include "templates/kernel_fixture.hpp"

namespace kiln::testing::append_paged_kv {
namespace {

constexpr int kTokens = 7, kHeads = 3, kD = 40, kPages = 5, kPageSize = 3;
constexpr std::size_t kCached = static_cast<std::size_t>(kPages * kPageSize * kHeads * kD);

struct Layout {
  const char* name;
  int stride_slot, stride_head;
};
constexpr Layout kLayouts[] = {{"NHD", kHeads* kD, kD}, {"HND", kD, kPageSize* kD}};

class AppendPagedKvTest : public KernelTest {
 protected:
  const std::vector<std::uint16_t> k_ = random_bf16(kTokens * kHeads * kD, 1),
                                   v_ = random_bf16(kTokens * kHeads * kD, 2),
                                   before_ = random_bf16(kCached, 3);

  // `slots` has the slot of each token; below 0 means none.
  template <class T>
  static std::vector<T> expected(const std::vector<T>& before, const std::vector<T>& rows,
                                 const std::vector<int>& slots, const Layout& layout) {
    auto out = before;
    for (int t = 0; t < kTokens; ++t) {
      const int slot = slots[static_cast<std::size_t>(t)];
      if (slot < 0) continue;
      for (int h = 0; h < kHeads; ++h) {
        for (int i = 0; i < kD; ++i) {
          const int at = slot / kPageSize * kPageSize * kHeads * kD + slot % kPageSize * layout.stride_slot +
                         h * layout.stride_head + i;
          out[static_cast<std::size_t>(at)] = rows[static_cast<std::size_t>((t * kHeads + h) * kD + i)];
        }
      }
    }
    return out;
  }

  // `tables` are slot_mapping, kv_indices, kv_indptr, batch_indices and positions.
  template <class... Tables>
  void check(const std::vector<NamedValue>& named, const std::vector<int>& slots, const Layout& layout,
             Tables... tables) {
    const Pair pair = get("append_paged_kv", named);
    const DeviceArray k(*driver_, k_), v(*driver_, v_), k_cache(*driver_, before_),
        v_cache(*driver_, before_);
    const DeviceArray k_double(*driver_, widened(before_)), v_double(*driver_, widened(before_));
    const int row = kHeads * kD;
    launch(*pair.kernel, pointer(k_cache), pointer(v_cache), pointer(k), pointer(v), kTokens, kHeads,
           kPageSize, row, kD, row, kD, kPageSize * row, layout.stride_slot, layout.stride_head, tables...);
    launch(*pair.reference, pointer(k_double), pointer(v_double), pointer(k), pointer(v), kTokens, kHeads,
           kPageSize, row, kD, row, kD, kPageSize * row, layout.stride_slot, layout.stride_head, tables...);
    EXPECT_EQ(k_cache.host(), expected(before_, k_, slots, layout)) << layout.name;
    EXPECT_EQ(v_cache.host(), expected(before_, v_, slots, layout)) << layout.name;
    EXPECT_EQ(k_double.host(), expected(widened(before_), widened(k_), slots, layout)) << layout.name;
    EXPECT_EQ(v_double.host(), expected(widened(before_), widened(v_), slots, layout)) << layout.name;
  }
};

TEST_F(AppendPagedKvTest, StoresEachTokenAtItsSlot) {
  const std::vector<std::int64_t> slots = {14, 0, -1, 7, 3, -1, 8};
  const DeviceArray mapping(*driver_, slots);
  for (const Layout& layout : kLayouts) {
    check({{"T", Dtype::bf16}, {"D", kD}}, {slots.begin(), slots.end()}, layout, pointer(mapping));
  }
}

TEST_F(AppendPagedKvTest, FollowsThePageTable) {
  // Requests of 4, 0 and 5 tokens: pages {2, 4}, {}, {0, 3}.
  const DeviceArray indices(*driver_, std::vector<int>{2, 4, 0, 3}),
      indptr(*driver_, std::vector<int>{0, 2, 2, 4});
  const DeviceArray requests(*driver_, std::vector<int>{0, 2, 2, 0, -1, 2, 0});
  const DeviceArray positions(*driver_, std::vector<int>{3, 0, 4, 1, 0, 3, 0});
  for (const Layout& layout : kLayouts) {
    check({{"T", Dtype::bf16}, {"D", kD}, {"IDTYPE", Dtype::i32}, {"PAGING", "page_table"}},
          {12, 0, 10, 7, -1, 9, 6}, layout, null(), pointer(indices), pointer(indptr), pointer(requests),
          pointer(positions));
  }
}

TEST_F(AppendPagedKvTest, ItsReferenceDividesByTheScaleOfTheHeadAndSaturates) {
  const std::vector<std::int64_t> slots = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<float> k_scales = {0.5f, 0.001f, 2.0f}, v_scales = {1.0f, 3.0f, 0.25f};
  const Pair pair = get("append_paged_kv", {{"T", Dtype::bf16}, {"D", kD}, {"KV", Dtype::e4m3}});
  const DeviceArray mapping(*driver_, slots);
  const DeviceArray k(*driver_, k_), v(*driver_, v_);
  const DeviceArray k_scale(*driver_, k_scales), v_scale(*driver_, v_scales);
  const DeviceArray k_double(*driver_, std::vector<double>(kCached, 0)),
      v_double(*driver_, std::vector<double>(kCached, 0));
  const int row = kHeads * kD;
  launch(*pair.reference, pointer(k_double), pointer(v_double), pointer(k), pointer(v), kTokens, kHeads,
         kPageSize, row, kD, row, kD, kPageSize * row, row, kD, pointer(mapping), null(), null(), null(),
         null(), pointer(k_scale), pointer(v_scale), 1);
  const auto quantised = [&](const std::vector<std::uint16_t>& rows, const std::vector<float>& scales) {
    auto out = widened(rows);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double scale = static_cast<double>(scales[i / kD % kHeads]);
      out[i] = std::min(448.0, std::max(-448.0, out[i] / scale));
    }
    out.resize(kCached, 0.0);
    return out;
  };
  EXPECT_EQ(k_double.host(), quantised(k_, k_scales));
  EXPECT_EQ(v_double.host(), quantised(v_, v_scales));
}

}  // namespace
}  // namespace kiln::testing::append_paged_kv
