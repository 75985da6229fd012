#include "cache/fleet/redis/cluster_slots.hpp"

#include <algorithm>
#include <charconv>

namespace kiln::fleet {
namespace {

template <class Number>
bool number(std::string_view text, Number& out, Number most) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out <= most;
}

/// Accepts a name or address that a node may announce. "?" and an empty text mean that the cluster itself
/// does not know it.
bool announced(std::string_view text, std::string& host) {
  const auto in_host = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == ':' || c == '_';
  };
  if (text == "?") text = {};
  if (text.size() > 253 || !std::all_of(text.begin(), text.end(), in_host)) return false;
  host = text;
  return true;
}

bool to_port(std::int64_t value, std::uint16_t& port) {
  if (value < 1 || value > 0xffff) return false;
  port = static_cast<std::uint16_t>(value);
  return true;
}

}  // namespace

std::uint16_t hash_slot_of(std::string_view tag) noexcept {
  std::uint16_t crc = 0;  // CRC-16/XMODEM, as the cluster specification says
  for (const char c : tag) {
    crc = static_cast<std::uint16_t>(crc ^ static_cast<unsigned char>(c) << 8);
    for (int bit = 0; bit < 8; ++bit)
      crc = static_cast<std::uint16_t>(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
  }
  return crc % kHashSlots;
}

std::vector<HashSlotRange> hash_slot_ranges(const Reply& reply) {
  std::vector<HashSlotRange> out;
  for (const Reply& row : reply.elements) {
    // [first, last, [host, port, ...] of the owner, replicas...]
    if (row.elements.size() < 3 || row.elements[2].elements.size() < 2) continue;
    const std::int64_t first = row.elements[0].integer, last = row.elements[1].integer;
    const auto& owner = row.elements[2].elements;
    HashSlotRange range;
    if (first < 0 || last < first || last >= static_cast<std::int64_t>(kHashSlots)) continue;
    if (!announced(owner[0].text, range.owner.host) || !to_port(owner[1].integer, range.owner.port)) continue;
    range.first = static_cast<std::uint16_t>(first);
    range.last = static_cast<std::uint16_t>(last);
    out.push_back(std::move(range));
  }
  return out;
}

std::optional<Redirection> redirection(std::string_view error) {
  Redirection out;
  if (error.starts_with("ASK "))
    out.ask = true;
  else if (!error.starts_with("MOVED "))
    return std::nullopt;
  error.remove_prefix(error.find(' ') + 1);
  const auto space = error.find(' '), colon = error.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space)
    return std::nullopt;
  std::uint16_t port = 0;
  if (!number(error.substr(0, space), out.hash_slot, static_cast<std::uint16_t>(kHashSlots - 1)) ||
      !number(error.substr(colon + 1), port, std::uint16_t{0xffff}) || !to_port(port, out.to.port) ||
      !announced(error.substr(space + 1, colon - space - 1), out.to.host))
    return std::nullopt;
  return out;
}

}  // namespace kiln::fleet
