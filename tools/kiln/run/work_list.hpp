// The batch that `kiln run` generates from a manifest's [work_list.run], and its work list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.hpp"
#include "manifest/manifest.hpp"

namespace kiln::cli {

/// The lengths of one batch, and the work list for them. Equal values and seeds give equal results on every
/// machine.
class RunWorkList {
 public:
  /// `slots` holds every value that [work_list] and [work_list.run] read. Throws Error:
  /// - manifest: the manifest has no [work_list.run];
  /// - invalid_value: no batch can have these values;
  /// - invalid_argument: no list can have these limits.
  RunWorkList(const source::Manifest& manifest, std::span<const std::int64_t> slots, std::uint64_t seed);

  /// Number of elements of the argument that takes the list. It depends on the values, not on the seed.
  static std::uint64_t words(const source::Manifest& manifest, std::span<const std::int64_t> slots);
  /// The elements of the list.
  std::vector<std::int32_t> make() const;
  /// The array that fill = "work_list(NAME)" names. REQUIRES: a name that the manifest's parser allows.
  std::vector<std::int64_t> array(std::string_view name) const;

 private:
  void draw_lengths(std::uint64_t seed);
  void place_kv();

  const source::Manifest& manifest_;
  const std::span<const std::int64_t> slots_;
  const attention::Limits limits_;
  const std::int64_t page_size_;
  std::vector<std::int64_t> qo_len_, kv_len_;
  std::vector<std::int32_t> qo_indptr_, kv_indptr_, last_page_len_;
};

}  // namespace kiln::cli
