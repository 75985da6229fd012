// The batch that `kiln run` makes up by a manifest's [work_list.run], and the work list for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.hpp"
#include "manifest/manifest.hpp"

namespace kiln::cli {

/// The lengths of one batch and the work list for them. Equal values and seeds give equal ones on every
/// machine.
class RunWorkList {
 public:
  /// `slots`: every value that [work_list] and [work_list.run] read. Throws Error: the manifest has no
  /// [work_list.run] (manifest), values that no batch can have (invalid_value), limits that no list can have
  /// (invalid_argument).
  RunWorkList(const source::Manifest& manifest, std::span<const std::int64_t> slots, std::uint64_t seed);

  /// Elements of the argument that takes the list. They depend on the values, and not on the seed.
  static std::uint64_t words(const source::Manifest& manifest, std::span<const std::int64_t> slots);
  /// The elements of the list.
  std::vector<std::int32_t> make() const;
  /// What fill = "work_list(NAME)" names. REQUIRES: a name that the manifest's parser allows.
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
