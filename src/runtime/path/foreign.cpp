#include "runtime/path/foreign.hpp"

#include <algorithm>
#include <charconv>

#include "base/wire.hpp"

namespace kiln::runtime {
namespace {

/// "13.0" as a number to sort by.
double version_number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

bool ForeignRecords::are_taken(const Unit& unit, const Permission& permission) {
  const std::string& rule = state_.config.get("toolchain");
  const toolchain::Toolkit& toolkit = state_.files.toolkit();
  const bool slim =
      !toolkit.has_compiler() || (toolkit.include_dirs.empty() && !unit.closure.missing.empty());
  return rule != "own" && (!rule.empty() || slim || permission.foreign);
}

bool ForeignRecords::allows(const Key& key) const {
  const std::string& rule = state_.config.get("toolchain");
  return rule.empty() || rule == "any" || key.toolchain.hex().compare(0, rule.size(), rule) == 0;
}

std::shared_ptr<const StoredImage> ForeignRecords::image_of(const Unit& unit, cache::Record record) {
  const auto section = compile::toolchain_section(record.key_text);
  if (std::string_view(record.key_text).substr(0, section) != unit.made.specialisation_text()) return nullptr;
  try {
    auto image = std::make_shared<StoredImage>();
    image->key = record.key;
    image->facts = compile::decode_facts(record.facts);
    if (image->facts.project_header_through_toolkit) return nullptr;
    image->bytes = std::move(record.image);
    return image;
  } catch (const base::Malformed&) {
    return nullptr;
  }
}

std::optional<Obtained> ForeignRecords::best(std::vector<Obtained> candidates) {
  if (candidates.empty()) return std::nullopt;
  std::stable_sort(candidates.begin(), candidates.end(), [](const Obtained& a, const Obtained& b) {
    const compile::Facts &fa = a.image->facts, &fb = b.image->facts;
    const double va = version_number(fa.compiler_version), vb = version_number(fb.compiler_version);
    return va != vb ? va > vb : fa.created_s > fb.created_s;
  });
  return std::move(candidates.front());
}

}  // namespace kiln::runtime
