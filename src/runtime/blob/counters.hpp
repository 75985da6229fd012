// The counters of one space of blobs, and their places in the tally that keeps them beyond a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cache/store/tally.hpp"

namespace kiln::runtime {

/// Thread-safe.
struct BlobCounts {
  using Count = std::atomic<std::uint64_t>;
  Count hits{}, misses{}, damaged{}, sealed_misses{}, remote_hits{}, waits{}, wait_timeouts{};
  Count puts{}, puts_present{}, puts_skipped{}, evictions{}, bytes_read{}, bytes_written{};
};

struct BlobCounter {
  const char* name;  ///< "hits"
  BlobCounts::Count BlobCounts::*count;
};
/// All of BlobCounts. An index is a place in the space's tally, so the list is append-only.
std::span<const BlobCounter> blob_counters() noexcept;

/// The prefix of the names of tallies of spaces in DIR/v1. The rest of a name is the space.
inline constexpr const char* kSpaceTally = "counters.";
/// The tally of a space in the store in `directory`. Opens nothing.
std::unique_ptr<cache::Tally> tally_of_space(const std::string& directory, const std::string& space);

}  // namespace kiln::runtime
