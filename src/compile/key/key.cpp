#include "compile/key/key.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/hash.hpp"
#include "base/process.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/fields.hpp"
#include "instantiate/overlay.hpp"

namespace kiln::compile {
namespace {

constexpr std::string_view kToolchainLine = "toolchain 1:1\n";

/// Appends in place, because the key text of CUB's 622 headers is made at every start: no field
/// makes its own string.
void value(std::string& out, std::string_view value) {
  char size[24] = " ";
  const auto end = std::to_chars(size + 1, size + sizeof size, value.size()).ptr;
  out.append(size, end).append(1, ':').append(value);
}
void value(std::string& out, const Digest& digest) {
  constexpr char digits[] = "0123456789abcdef";
  char hex[2 * sizeof digest.bytes];
  char* at = hex;
  for (const std::uint8_t byte : digest.bytes) *at++ = digits[byte >> 4], *at++ = digits[byte & 15];
  value(out, std::string_view(hex, sizeof hex));
}

template <class... Values>
void put(std::string& out, FieldId id, const Values&... values) {
  out += label_of(id);
  (value(out, values), ...);
  out += '\n';
}

Key key_of(std::string_view text, std::size_t toolchain_at) noexcept {
  return {base::digest_of(text.substr(0, toolchain_at)), base::digest_of(text.substr(toolchain_at))};
}

/// --no-cache: NVRTC's own cache touches the driver and falsifies results. -v and --time
/// only write to the log.
struct Options {
  const std::vector<std::string> all{"--no-cache", "--modify-stack-limit=false", "--ptxas-options=-v",
                                     "--time=-"};
};
// This is not a static of the function: a child that is forked while the static is made would wait for ever.
constinit base::ProcessWide<Options> g_options;

}  // namespace

const std::vector<std::string>& kiln_options() { return g_options.get().all; }

MadeKey make_key(const source::Instantiation& unit, const source::Closure& closure,
                 const toolchain::Toolkit& toolkit) {
  MadeKey made;
  std::string& text = made.text;
  text.reserve(512 + 160 * closure.files.size());
  put(text, FieldId::version, kKeySchema);
  put(text, FieldId::unit, unit.unit);
  put(text, FieldId::arch, unit.resolved.arch.name());
  put(text, FieldId::source, base::digest_of(unit.source));
  for (const source::ProjectEdge& edge : closure.edges) {
    const source::ClosureFile& file = closure.files[edge.file];
    put(text, FieldId::include, edge.includer, edge.spelling, file.symbolic, file.digest);
  }
  for (const auto& [name, file] : unit.compile.replace) put(text, FieldId::replace, name, file);
  if (unit.compile.cut_host_code) put(text, FieldId::host_code, source::host_code_text(unit.compile));
  put(text, FieldId::name, unit.name_expression);
  for (const source::NamedText& e : unit.entries) put(text, FieldId::entry, e.name, e.cpp);
  for (const source::NamedText& g : unit.globals) put(text, FieldId::global, g.name, g.cpp);
  for (const source::NamedText& e : unit.exports) put(text, FieldId::exported, e.name, e.cpp);
  for (const Parameter& p : unit.resolved.specialization.parameters)
    put(text, FieldId::parameter, p.name, p.value);
  for (const std::string& option : unit.options) put(text, FieldId::option, option);

  made.toolchain_at = text.size();
  text += kToolchainLine;
  put(text, FieldId::facts, std::to_string(kFactsVersion));
  put(text, FieldId::compiler, toolkit.compiler_identity);
  put(text, FieldId::builtins, toolkit.builtins_identity);
  for (const std::string& option : kiln_options()) put(text, FieldId::kiln_option, option);
  for (const source::ClosureFile& file : closure.files) {
    if (file.toolkit)
      put(text, FieldId::header, file.symbolic, file.digest);
    else if (file.via_toolkit) {
      put(text, FieldId::project_header, file.symbolic, file.digest);
      made.project_header_through_toolkit = true;
    }
  }
  made.key = key_of(text, made.toolchain_at);
  return made;
}

Key key_of_text(std::string_view text) noexcept { return key_of(text, toolchain_section(text)); }

std::vector<KeyField> parse_key_text(std::string_view text) {
  std::vector<KeyField> out;
  while (!text.empty()) {
    KeyField parsed;
    const auto label_end = text.find_first_of(" \n");
    if (label_end == std::string_view::npos) return out;
    parsed.label = text.substr(0, label_end);
    text.remove_prefix(label_end);
    while (!text.empty() && text.front() == ' ') {
      std::size_t size = 0;
      const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), size);
      const auto value_at = static_cast<std::size_t>(end - text.data()) + 1;
      if (error != std::errc{} || value_at > text.size() || *end != ':' || size > text.size() - value_at)
        return out;
      parsed.values.emplace_back(text.substr(value_at, size));
      text.remove_prefix(value_at + size);
    }
    if (text.empty() || text.front() != '\n') return out;
    text.remove_prefix(1);
    out.push_back(std::move(parsed));
  }
  return out;
}

std::size_t toolchain_section(std::string_view text) noexcept {
  // A value cannot imitate the line, because the line follows a newline that ends a field. The length of
  // every value is known, so the fields are walked, not searched.
  std::size_t at = 0;
  while (at < text.size() && text.substr(at, kToolchainLine.size()) != kToolchainLine) {
    std::size_t here = text.find_first_of(" \n", at);
    while (here < text.size() && text[here] == ' ') {
      std::size_t size = 0;
      const auto [end, error] = std::from_chars(text.data() + here + 1, text.data() + text.size(), size);
      if (error != std::errc{}) return text.size();
      here = static_cast<std::size_t>(end - text.data()) + 1;
      here = size > text.size() - std::min(here, text.size()) ? text.size() : here + size;
    }
    if (here >= text.size()) return text.size();
    at = here + 1;
  }
  return at;
}

}  // namespace kiln::compile
