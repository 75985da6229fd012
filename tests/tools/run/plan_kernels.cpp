// A kernel that reads a plan, and its reference. Both run on the CPU,
// preloaded into the command over the fake driver.
// Row r of head h of a request gets the sum of the k that it sees. The kernel works as on a GPU: block by
// block, with slots and counters. The reference reads the arrays of lengths.
// With PLAN_WRONG=1 in the environment, the kernel leaves out the last kv token of each item.
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/own_kernels.hpp"

namespace {

using kiln::test::compare, kiln::test::fill;

/// attend(out, k, pages, plan, partial, workers, kv_heads, group, causal, window_left, page_size, qo_indptr,
/// kv_indptr, kv_len)
template <class Out>
struct Call {
  explicit Call(const kiln_fake_launch& l)
      : out(argument<Out*>(l, 0)),
        k(argument<const float*>(l, 1)),
        pages(argument<const std::int32_t*>(l, 2)),
        plan(argument<std::int32_t*>(l, 3)),
        partial(argument<float*>(l, 4)),
        workers(argument<std::int32_t>(l, 5)),
        kv_heads(argument<std::int32_t>(l, 6)),
        group(argument<std::int32_t>(l, 7)),
        causal(argument<std::int32_t>(l, 8)),
        window_left(argument<std::int32_t>(l, 9)),
        page_size(argument<std::int32_t>(l, 10)),
        qo_indptr(argument<const std::int32_t*>(l, 11)),
        kv_indptr(argument<const std::int32_t*>(l, 12)),
        kv_len(argument<const std::int32_t*>(l, 13)) {}

  Out* out;
  const float* k;
  const std::int32_t* pages;
  std::int32_t* plan;
  float* partial;
  std::int32_t workers, kv_heads, group, causal, window_left, page_size;
  const std::int32_t *qo_indptr, *kv_indptr, *kv_len;

  /// The sum of the kv tokens in [begin, end) that packed row `row` of a request sees.
  double sum(int row, int head, int qo_len, int kv_len_of, int kv_base, int begin, int end) const {
    const int at = row / group + kv_len_of - qo_len;
    double total = 0;
    for (int j = begin; j < end; ++j) {
      if ((causal && j > at) || (window_left >= 0 && j < at - window_left)) continue;
      const int place =
          page_size > 0 ? pages[kv_base + j / page_size] * page_size + j % page_size : kv_base + j;
      total += k[place * kv_heads + head];
    }
    return total;
  }
  Out& result(int token, int head, int row) const {
    return out[token * kv_heads * group + head * group + row % group];
  }
};

constexpr std::int32_t tile_rows = 8;  // equal to the value in plan_test's manifest

/// Computes a whole tile, one tile of an item, or a part. It covers the kv tokens in [begin,
/// end); `sum` takes those that a row sees.
void tile(const Call<float>& call, const std::int32_t* item, int first_row, int begin, int end) {
  std::int32_t* const counters = call.plan + 16 + (call.workers + 4) / 4 * 4;
  const int head = item[1], qo_begin = item[3], qo_len = item[4], parts = item[11];
  const int rows = std::min(qo_len * call.group - first_row, tile_rows);
  if (std::getenv("PLAN_WRONG")) --end;
  std::vector<float> sums;
  for (int row = first_row; row < first_row + rows; ++row)
    sums.push_back(static_cast<float>(call.sum(row, head, qo_len, item[5], item[6], begin, end)));
  if (parts > 1) {
    std::copy(sums.begin(), sums.end(), call.partial + (item[9] + item[10]) * tile_rows);
    if (++counters[item[9] / 2] < parts) return;
    counters[item[9] / 2] = 0;
    for (int row = 0; row < rows; ++row) {
      sums[static_cast<std::size_t>(row)] = 0;
      for (int part = 0; part < parts; ++part)
        sums[static_cast<std::size_t>(row)] += call.partial[(item[9] + part) * tile_rows + row];
    }
  }
  for (int row = 0; row < rows; ++row)
    call.result(qo_begin + (first_row + row) / call.group, head, first_row + row) =
        sums[static_cast<std::size_t>(row)];
}

void block(const Call<float>& call, int worker) {
  const std::int32_t *plan = call.plan, *first_items = plan + 16 + 2 * ((call.workers + 4) / 4 * 4);
  for (std::int32_t i = plan[16 + worker]; i < plan[16 + worker + 1]; ++i) {
    const std::int32_t* const item = first_items + 12 * (i == plan[16 + worker] ? worker : call.workers + i);
    tile(call, item, item[2], item[7], item[8]);
    for (int nth = 1; nth < (item[11] > 1 ? 1 : -item[9]); ++nth)
      tile(call, item, item[2] + nth * tile_rows, 0, item[5]);
  }
}

void reference(const Call<double>& call) {
  for (int i = 0; i < call.plan[4]; ++i) {
    const int qo_begin = call.qo_indptr ? call.qo_indptr[i] : i,
              qo_len = call.qo_indptr ? call.qo_indptr[i + 1] - qo_begin : 1;
    for (int row = 0; row < qo_len * call.group; ++row)
      for (int head = 0; head < call.kv_heads; ++head)
        call.result(qo_begin + row / call.group, head, row) =
            call.sum(row, head, qo_len, call.kv_len[i], call.kv_indptr[i], 0, call.kv_len[i]);
  }
}

void on_launch(const kiln_fake_launch* launch, void*) {
  const std::string name = launch->kernel;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("attend_reference")) return reference(Call<double>(*launch));
  if (has("compare")) return compare(*launch);
  if (has("fill")) return fill(*launch);
  if (!has("attend")) return;
  for (int worker = static_cast<int>(launch->grid[0]); worker-- > 0;)
    block(Call<float>(*launch), worker);  // a GPU promises no order of blocks
}

[[maybe_unused]] const bool kRegistered = (kiln_fake_on_launch(on_launch, nullptr), true);

}  // namespace
