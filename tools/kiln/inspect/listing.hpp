// The entries that `kiln ls` shows, and their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

struct ListingRequest {
  std::string template_name;        ///< empty: all
  std::vector<std::string> archs;   ///< empty: all
  std::vector<std::string> values;  ///< "H=4096"; all must hold
  enum class Order { by_template, size, age, uses, compile_time } order = Order::by_template;
  bool reverse = false;
  std::size_t limit = 0;  ///< 0: no limit
};
/// Throws Error(invalid_argument) with the known orders.
ListingRequest::Order parse_order(const std::string& text);
std::string_view name_of(ListingRequest::Order order) noexcept;

struct ListedSum {
  std::uint64_t count = 0, cubin_bytes = 0, stored_bytes = 0;
  void add(const StoredEntry& e) noexcept {
    ++count, cubin_bytes += e.cubin_bytes, stored_bytes += e.stored_bytes;
  }
};

struct Listing {
  std::vector<const StoredEntry*> shown;  ///< point into the list that `choose` received
  ListedSum matching, all;                ///< matching: before the limit was applied
};
/// `entries` must be in the order of read_entries. Throws Error(unknown_parameter) for a parameter that no
/// entry of the chosen template has.
Listing choose(const std::vector<StoredEntry>& entries, const ListingRequest& request);

}  // namespace kiln::cli
