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

/// The hash slot of a key's tag. The tag is the text between the first braces, or the
/// whole key without braces.
std::uint16_t hash_slot_of(std::string_view tag) noexcept;

struct Node {
  std::string host;  ///< as the cluster announces it; empty: the asked node's host
  std::uint16_t port = 0;
};
struct HashSlotRange {
  std::uint16_t first = 0, last = 0;  ///< both included
  Node owner;
};
/// Reads an answer to CLUSTER SLOTS. Rows that make no sense are left out.
std::vector<HashSlotRange> hash_slot_ranges(const Reply& reply);

struct Redirection {
  bool ask = false;  ///< only this once, after ASKING; else the slot has moved for good
  std::uint16_t hash_slot = 0;
  Node to;
};
/// Reads the text of an error: "MOVED 3999 127.0.0.1:6381" or "ASK ...". Returns nothing for another error.
std::optional<Redirection> redirection(std::string_view error);

}  // namespace kiln::fleet
