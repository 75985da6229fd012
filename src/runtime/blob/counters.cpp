#include "runtime/blob/counters.hpp"

namespace kiln::runtime {
namespace {

using C = BlobCounts;

constexpr BlobCounter kCounters[] = {
    {"hits", &C::hits},
    {"misses", &C::misses},
    {"damaged", &C::damaged},
    {"sealed_misses", &C::sealed_misses},
    {"remote_hits", &C::remote_hits},
    {"waits", &C::waits},
    {"wait_timeouts", &C::wait_timeouts},
    {"puts", &C::puts},
    {"puts_present", &C::puts_present},
    {"puts_skipped", &C::puts_skipped},
    {"evictions", &C::evictions},
    {"bytes_read", &C::bytes_read},
    {"bytes_written", &C::bytes_written},
};
static_assert(std::size(kCounters) <= cache::kTallyValues);
static_assert(sizeof(BlobCounts) == std::size(kCounters) * sizeof(C::Count),
              "a counter was added to BlobCounts: append it here");

}  // namespace

std::span<const BlobCounter> blob_counters() noexcept { return kCounters; }

std::unique_ptr<cache::Tally> tally_of_space(const std::string& directory, const std::string& space) {
  return std::make_unique<cache::Tally>(directory + "/v1", kSpaceTally + space);
}

}  // namespace kiln::runtime
