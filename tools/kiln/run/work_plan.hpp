// What `kiln run` plans for: a batch of lengths, made by the manifest's [plan.run], and its host plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.hpp"
#include "manifest/manifest.hpp"

namespace kiln::cli {

/// The lengths of one batch and the plan for them. The same for the same values and seed on every machine.
class RunPlan {
 public:
  /// `slots`: every value that [plan] and [plan.run] read. Throws Error: the manifest has no [plan.run]
  /// (manifest), values that no batch can have (invalid_value), limits that no plan can have
  /// (invalid_argument).
  RunPlan(const source::Manifest& manifest, std::span<const std::int64_t> slots, std::uint64_t seed);

  /// Elements of the argument that takes a plan, which depend on the values and not on the seed.
  static std::uint64_t words(const source::Manifest& manifest, std::span<const std::int64_t> slots);
  /// The plan's elements.
  std::vector<std::int32_t> make() const;
  /// What fill = "plan(NAME)" names. REQUIRES: a name that the manifest's parser allows.
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
