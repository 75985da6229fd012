// Redis Cluster: which of 16,384 slots a key is in, and which node has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/fleet/redis/reply.hpp"

namespace kiln::fleet {

inline constexpr std::size_t kHashSlots = 16384;

/// Of a key's hash tag: what stands between the first braces, or the whole key without such.
std::uint16_t hash_slot_of(std::string_view tag) noexcept;

struct Node {
  std::string host;  ///< as the cluster announces it; empty: that of the node which was asked
  std::uint16_t port = 0;
};
struct HashSlotRange {
  std::uint16_t first = 0, last = 0;  ///< both included
  Node owner;
};
/// An answer to CLUSTER SLOTS, of which rows that make no sense are left out.
std::vector<HashSlotRange> hash_slot_ranges(const Reply& reply);

struct Redirection {
  bool ask = false;  ///< this once, after ASKING; else the slot has moved for good
  std::uint16_t hash_slot = 0;
  Node to;
};
/// "MOVED 3999 127.0.0.1:6381" or "ASK ...", an error's text. Nothing: another error.
std::optional<Redirection> redirection(std::string_view error);

}  // namespace kiln::fleet
