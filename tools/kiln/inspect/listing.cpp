#include "tools/kiln/inspect/listing.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/error.hpp"
#include "manifest/catalog.hpp"

namespace kiln::cli {
namespace {

using Order = ListingRequest::Order;

constexpr const char* kOrders[] = {"template", "size", "age", "uses", "compile-time"};

bool has(const StoredEntry& entry, const NamedValue& wanted) {
  for (const Parameter& p : entry.facts.parameters)
    if (p.name == wanted.name) return p.value == wanted.value.text;
  return false;
}

void check_names(const std::vector<const StoredEntry*>& entries, const std::vector<NamedValue>& wanted) {
  if (entries.empty()) return;
  std::set<std::string> known;
  for (const StoredEntry* entry : entries)
    for (const Parameter& p : entry->facts.parameters) known.insert(p.name);
  const std::vector<std::string> names(known.begin(), known.end());
  for (const NamedValue& value : wanted) {
    if (known.contains(std::string(value.name))) continue;
    throw Error(Errc::unknown_parameter, "no entry has a parameter '" + std::string(value.name) + "'" +
                                             base::did_you_mean(value.name, names) +
                                             " (there are: " + base::join(names, " ") + ')');
  }
}

/// Orders the largest, newest, most used or slowest entry first.
bool before(const StoredEntry& a, const StoredEntry& b, Order order) {
  switch (order) {
    case Order::size:
      return a.cubin_bytes > b.cubin_bytes;
    case Order::age:
      return a.facts.created_s > b.facts.created_s;
    case Order::uses:
      return a.uses > b.uses;
    case Order::compile_time:
      return a.facts.compile_ms > b.facts.compile_ms;
    case Order::by_template:
      return false;
  }
  return false;
}

}  // namespace

Order parse_order(const std::string& text) {
  for (std::size_t i = 0; i < std::size(kOrders); ++i)
    if (text == kOrders[i]) return static_cast<Order>(i);
  const std::vector<std::string> all(std::begin(kOrders), std::end(kOrders));
  throw Error(Errc::invalid_argument,
              "--sort " + text + ": expected " + base::join(all, ", ") + base::did_you_mean(text, all));
}

std::string_view name_of(Order order) noexcept { return kOrders[static_cast<int>(order)]; }

Listing choose(const std::vector<StoredEntry>& entries, const ListingRequest& request) {
  Listing out;
  for (const StoredEntry& entry : entries) {
    out.all.add(entry);
    if (!request.template_name.empty() && entry.template_name() != request.template_name) continue;
    out.shown.push_back(&entry);
  }
  const std::vector<NamedValue> wanted = source::parse_assignments(request.values);
  if (!wanted.empty()) check_names(out.shown, wanted);
  std::erase_if(out.shown, [&](const StoredEntry* entry) {
    const auto& archs = request.archs;
    if (!archs.empty() && std::find(archs.begin(), archs.end(), entry->facts.arch) == archs.end())
      return true;
    return !std::all_of(wanted.begin(), wanted.end(), [&](const NamedValue& v) { return has(*entry, v); });
  });
  for (const StoredEntry* entry : out.shown) out.matching.add(*entry);
  if (request.order != Order::by_template) {
    std::stable_sort(out.shown.begin(), out.shown.end(), [&](const StoredEntry* a, const StoredEntry* b) {
      return before(*a, *b, request.order);
    });
  }
  if (request.reverse) std::reverse(out.shown.begin(), out.shown.end());
  if (request.limit > 0 && out.shown.size() > request.limit) out.shown.resize(request.limit);
  return out;
}

}  // namespace kiln::cli
