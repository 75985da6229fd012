#include "tools/kiln/audit/compare.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "base/text.hpp"
#include "kiln/error.hpp"
#include "toolchain/elf.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kFieldsNamed = 3;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Returns "section .text.scale" for the first section that differs; "" when no section tells.
std::string first_different_section(std::string_view a, std::string_view b) try {
  const toolchain::Elf one(bytes_of(a)), other(bytes_of(b));
  const std::size_t common = std::min(one.sections().size(), other.sections().size());
  for (std::size_t i = 0; i < common; ++i) {
    const toolchain::ElfSection &p = one.sections()[i], &q = other.sections()[i];
    if (p.name != q.name || p.size != q.size || p.type != q.type ||
        !std::equal(p.bytes.begin(), p.bytes.end(), q.bytes.begin(), q.bytes.end()))
      return std::string(p.name);
  }
  const auto& longer = one.sections().size() > common ? one : other;
  return longer.sections().size() > common ? std::string(longer.sections()[common].name) : "";
} catch (const Error&) {
  return "";  // one of the two is no ELF
}

std::string different_facts(const compile::Facts& a, const compile::Facts& b) {
  std::string out;
  const auto compare = [&](const char* what, const auto& cached, const auto& now) {
    if (cached == now) return;
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(now)>>)
      out += (out.empty() ? "" : ", ") + std::string(what) + ' ' + std::to_string(cached) + " cached and " +
             std::to_string(now) + " now";
    else
      out += (out.empty() ? "" : ", ") + std::string(what) + " '" + cached + "' cached and '" + now + "' now";
  };
  compare("lowered name", a.lowered_name, b.lowered_name);
  compare("registers", a.registers, b.registers);
  compare("stack bytes", a.stack_bytes, b.stack_bytes);
  compare("spill store bytes", a.spill_store_bytes, b.spill_store_bytes);
  compare("spill load bytes", a.spill_load_bytes, b.spill_load_bytes);
  compare("shared bytes", a.shared_bytes, b.shared_bytes);
  compare("max threads", a.max_threads, b.max_threads);
  return out;
}

}  // namespace

std::string key_difference(std::string_view cached, std::string_view now) {
  std::vector<std::string> out;
  for (const KeyDifference& d : key_differences(cached, now))
    out.push_back(d.field + (d.name.empty() ? "" : ' ' + d.name) +
                  (!d.other ? " (gone)"
                   : !d.one ? " (new)"
                            : ""));
  const std::size_t more = out.size() - std::min(out.size(), kFieldsNamed);
  out.resize(out.size() - more);
  return base::join(out, ", ") + (more ? " and " + std::to_string(more) + " more" : "");
}

ImageDifference compare_images(const compile::Facts& cached_facts, std::string_view cached,
                               const compile::Facts& facts, std::string_view image) {
  ImageDifference out;
  const std::string other_facts = different_facts(cached_facts, facts);
  if (cached == image) {
    if (!other_facts.empty()) out.text = "the same image with other facts: " + other_facts;
    return out;
  }
  out.section = first_different_section(cached, image);
  const auto first = std::mismatch(cached.begin(), cached.end(), image.begin(), image.end()).first;
  out.text = (out.section.empty() ? "" : "section " + out.section + ", ") + "byte " +
             std::to_string(first - cached.begin()) + " of " + std::to_string(cached.size()) +
             " cached and " + std::to_string(image.size()) + " compiled";
  if (!other_facts.empty()) out.text += "; " + other_facts;
  return out;
}

}  // namespace kiln::cli
