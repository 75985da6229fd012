#include "tools/kiln/run/work_list.hpp"

#include "attention/layout.hpp"
#include "attention/work_list.hpp"
#include "kiln/error.hpp"
#include "runtime/launch/work_list.hpp"
#include "tools/kiln/run/fill_values.hpp"

namespace kiln::cli {
namespace {

using attention::kMost;

/// A value of [work_list.run] by name, or `fallback` when the manifest leaves it out.
std::int64_t run_value(const source::Manifest& manifest, std::span<const std::int64_t> slots,
                       std::string_view name, std::int64_t fallback) {
  const int slot = slot_index(manifest, name);
  if (slot < manifest.slots.run_slot(0) || slot >= manifest.slots.export_slot(0)) return fallback;
  const std::int64_t value = slots[static_cast<std::size_t>(slot)];
  if (value < 0 || value > kMost)
    throw Error(Errc::invalid_value,
                std::string(name) + " = " + std::to_string(value) + " must be 0 to 2^31 - 1");
  return value;
}

attention::KernelShape shape_of(const source::Manifest& manifest, std::span<const std::int64_t> slots) {
  return attention::shape_of(
      runtime::work_list_facts(manifest, attention::work_list_of(manifest), slots).kernel);
}

attention::Limits limits_of(const source::Manifest& manifest, std::span<const std::int64_t> slots) {
  if (!manifest.work_list || !manifest.work_list->has_run)
    throw Error(
        Errc::manifest,
        manifest.file + ": [work_list] has no [work_list.run], so `kiln run` cannot make a work list");
  const std::int64_t requests = run_value(manifest, slots, "requests", 0);
  return {
      .max_requests = requests,
      .max_tokens = run_value(manifest, slots, "qo_tokens", requests),
      .kv_heads = manifest.work_list->of("kv_heads").evaluate(slots),
      .workers = slots[static_cast<std::size_t>(manifest.slots.argument_slot(manifest.work_list->workers))]};
}

/// Splits `total` into `count` runs: of equal lengths, which may differ by 1, or of random lengths.
std::vector<std::int64_t> runs(std::int64_t count, std::int64_t total, bool equal, std::uint64_t seed) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  const auto offsets = equal ? std::vector<std::int64_t>() : random_offsets(out.size() + 1, total, seed);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    out[at] = equal ? total * (i + 1) / count - total * i / count : offsets[at + 1] - offsets[at];
  }
  return out;
}

std::vector<std::int32_t> indptr_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> out{0};
  for (const std::int64_t length : lengths) {
    if (out.back() + length > kMost)
      throw Error(Errc::invalid_value, "the batch has more than 2^31 - 1 tokens");
    out.push_back(static_cast<std::int32_t>(out.back() + length));
  }
  return out;
}

}  // namespace

RunWorkList::RunWorkList(const source::Manifest& manifest, std::span<const std::int64_t> slots,
                         std::uint64_t seed)
    : manifest_(manifest),
      slots_(slots),
      limits_(limits_of(manifest, slots)),
      page_size_(manifest.work_list->of("page_size").evaluate(slots)) {
  draw_lengths(seed);
  place_kv();
}

void RunWorkList::draw_lengths(std::uint64_t seed) {
  const std::int64_t requests = run_value(manifest_, slots_, "requests", 0),
                     kv_tokens = run_value(manifest_, slots_, "kv_tokens", 0);
  const std::int64_t qo_tokens = run_value(manifest_, slots_, "qo_tokens", -1);
  const bool equal = run_value(manifest_, slots_, "equal_lengths", 0) != 0;
  if (qo_tokens < 0) {  // a decode step
    qo_len_.assign(static_cast<std::size_t>(requests), 1);
    kv_len_ = runs(requests, kv_tokens, equal, seed);
  } else {
    qo_len_ = runs(requests, qo_tokens, equal, seed);
    // The q tokens are the last tokens of kv, when kv has at least as many.
    kv_len_ = runs(requests, kv_tokens >= qo_tokens ? kv_tokens - qo_tokens : kv_tokens, equal, seed + 1);
    for (std::size_t i = 0; kv_tokens >= qo_tokens && i < kv_len_.size(); ++i) kv_len_[i] += qo_len_[i];
  }
  qo_indptr_ = indptr_of(qo_len_);
}

void RunWorkList::place_kv() {
  if (page_size_ <= 0) {
    kv_indptr_ = indptr_of(kv_len_);
    last_page_len_.assign(kv_len_.size(), 0);
    return;
  }
  std::vector<std::int64_t> pages;
  for (const std::int64_t length : kv_len_) {
    pages.push_back((length + page_size_ - 1) / page_size_);
    last_page_len_.push_back(
        static_cast<std::int32_t>(length == 0 ? 1 : length - (pages.back() - 1) * page_size_));
  }
  kv_indptr_ = indptr_of(pages);
}

std::uint64_t RunWorkList::words(const source::Manifest& manifest, std::span<const std::int64_t> slots) {
  return static_cast<std::uint64_t>(
      attention::work_list_words(shape_of(manifest, slots), limits_of(manifest, slots)));
}

std::vector<std::int32_t> RunWorkList::make() const {
  const attention::KernelShape shape = shape_of(manifest_, slots_);
  std::vector<std::int32_t> out(static_cast<std::size_t>(attention::work_list_words(shape, limits_)));
  attention::write_work_list(shape, limits_,
                             {.requests = static_cast<std::int64_t>(qo_len_.size()),
                              .qo_indptr = qo_indptr_.data(),
                              .kv_indptr = kv_indptr_.data(),
                              .last_page_len = page_size_ > 0 ? last_page_len_.data() : nullptr,
                              .page_size = page_size_,
                              .window_left = manifest_.work_list->of("window_left").evaluate(slots_),
                              .window_right = manifest_.work_list->of("window_right").evaluate(slots_)},
                             out);
  return out;
}

std::vector<std::int64_t> RunWorkList::array(std::string_view name) const {
  if (name == "qo_indptr") return {qo_indptr_.begin(), qo_indptr_.end()};
  if (name == "kv_indptr") return {kv_indptr_.begin(), kv_indptr_.end()};
  if (name == "last_page_len") return {last_page_len_.begin(), last_page_len_.end()};
  if (name == "kv_len") return kv_len_;
  std::vector<std::int64_t> out{0};  // mask_indptr: in bytes; the bits of each request start at a whole byte
  for (std::size_t i = 0; i < qo_len_.size(); ++i)
    out.push_back(out.back() + (qo_len_[i] * kv_len_[i] + 7) / 8);
  return out;
}

}  // namespace kiln::cli
