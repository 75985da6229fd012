#include "attention/work_list.hpp"

#include <cstddef>
#include <string>

#include "kiln/error.hpp"
#include "manifest/manifest.hpp"

namespace kiln::attention {
namespace {

using Key = source::WorkListKind::Key;

/// The keys are in the order of KernelShape's members.
constexpr Key kKernel[] = {{.name = "tile_rows"},
                           {.name = "tile_kv"},
                           {.name = "group"},
                           {.name = "causal", .value = 0},
                           {.name = "window", .value = 0},
                           {.name = "tile_cost", .value = 1},
                           {.name = "min_units", .value = 4},
                           {.name = "tiles_together", .value = 0},
                           {.name = "heads_together", .value = 0},
                           {.name = "resident_kv", .value = 0}};
constexpr Key kRun[] = {{.name = "kv_heads"},
                        {.name = "page_size", .value = 0},
                        {.name = "window_left", .value = -1},
                        {.name = "window_right", .value = -1}};
constexpr Key kRunValues[] = {
    {.name = "requests", .doc = "requests of the batch"},
    // Without it each request has one token: a decode step.
    {.name = "qo_tokens", .may_be_left_out = true, .doc = "tokens of q, of all requests together"},
    {.name = "kv_tokens", .doc = "tokens of k and v, of all requests together"},
    {.name = "equal_lengths",
     .value = 0,
     .doc = "1: all requests alike, 0: random lengths, of which some are 0"}};
constexpr std::string_view kArrays[] = {"qo_indptr", "kv_indptr", "kv_len", "last_page_len", "mask_indptr"};

}  // namespace

constinit const source::WorkListKind kWorkList{
    .name = "attention", .kernel = kKernel, .run = kRun, .run_values = kRunValues, .arrays = kArrays};

const source::WorkListSpec& work_list_of(const source::Manifest& manifest) {
  if (manifest.work_list && manifest.work_list->kind == kWorkList.name) return *manifest.work_list;
  throw Error(Errc::invalid_argument,
              "the manifest of template '" + manifest.name + "' has no [work_list] of kind \"attention\"");
}

KernelShape shape_of(std::span<const std::int64_t> values) {
  static_assert(std::size(kKernel) == 10);
  return {.tile_rows = values[0],
          .tile_kv = values[1],
          .group = values[2],
          .causal = values[3] != 0,
          .window = values[4] != 0,
          .tile_cost = values[5],
          .min_kv_blocks = values[6],
          .tiles_together = values[7] != 0,
          .heads_together = values[8] != 0,
          .resident_kv = values[9]};
}

}  // namespace kiln::attention
