#include "toolchain/ptx.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace kiln::toolchain {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// The number at the beginning of `text`; 0 when there is none or it is too large.
std::uint32_t number_at(std::string_view text) noexcept {
  std::uint32_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} ? value : 0;
}

/// The size of one declaration, such as ".param .align 16 .b8 f_param_1[128]"; 0 when it cannot be read.
std::uint32_t argument_size(std::string_view declaration) noexcept {
  std::uint32_t element = 0;
  for (std::size_t at = declaration.find('.'); at != std::string_view::npos;
       at = declaration.find('.', at + 1)) {
    const std::string_view type = declaration.substr(at + 1, 2);
    // .u64, .s32, .f16, .b8; the bits stand behind one letter.
    if (type.size() == 2 && std::string_view("usfb").find(type[0]) != std::string_view::npos)
      if (const std::uint32_t bits = number_at(declaration.substr(at + 2))) element = bits / 8;
  }
  const std::size_t bracket = declaration.find('[');
  return bracket == std::string_view::npos ? element : element * number_at(declaration.substr(bracket + 1));
}

/// The numbers behind a directive, such as ".maxntid 256, 1, 1", of which the last ones may be left out; zeros
/// when there is no such directive.
std::array<std::uint32_t, 3> extents(std::string_view directives, std::string_view name) noexcept {
  std::array<std::uint32_t, 3> out{};
  std::size_t at = directives.find(name);
  if (at == std::string_view::npos) return out;
  out = {1, 1, 1};
  directives.remove_prefix(at + name.size());
  for (std::uint32_t& extent : out) {
    at = directives.find_first_not_of(" \t");
    if (at == std::string_view::npos) break;
    directives.remove_prefix(at);
    extent = number_at(directives);
    at = directives.find_first_not_of("0123456789 \t");
    if (at == std::string_view::npos || directives[at] != ',') break;
    directives.remove_prefix(at + 1);
  }
  return out;
}

}  // namespace

bool is_ptx(std::string_view image) noexcept {
  while (image.starts_with("//") || image.starts_with("\n"))  // comment lines stand before the version
    image.remove_prefix(std::min(image.find('\n'), image.size() - 1) + 1);
  return image.starts_with(".version ") && image.find('\0') == std::string_view::npos;
}

int ptx_target(std::string_view text) noexcept {
  constexpr std::string_view word = ".target sm_";
  const std::size_t at = text.find(word);
  return at == std::string_view::npos ? 0 : static_cast<int>(number_at(text.substr(at + word.size())));
}

std::optional<PtxKernel> ptx_kernel(std::string_view text, std::string_view lowered_name) {
  const std::string head = ".entry " + std::string(lowered_name);
  std::size_t at = text.find(head);
  while (at != std::string_view::npos && text.substr(at + head.size(), 1).find_first_of("( \t\r\n{") != 0)
    at = text.find(head, at + 1);  // another kernel, whose name begins like this one
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t body = text.find('{', at);
  if (body == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + head.size(), body - at - head.size());
  PtxKernel out;
  if (const std::size_t open = rest.find_first_not_of(kSpace);
      open != std::string_view::npos && rest[open] == '(') {
    const std::size_t close = rest.find(')', open);
    if (close == std::string_view::npos) return std::nullopt;
    std::string_view list = rest.substr(open + 1, close - open - 1);
    while (list.find_first_not_of(kSpace) != std::string_view::npos) {
      const std::size_t comma = std::min(list.find(','), list.size());
      out.arguments.push_back(argument_size(list.substr(0, comma)));
      if (out.arguments.back() == 0) return std::nullopt;
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
    rest.remove_prefix(close + 1);
  }
  const std::array<std::uint32_t, 3> most = extents(rest, ".maxntid");
  out.max_threads = most[0] * most[1] * most[2];
  out.required_block = extents(rest, ".reqntid");
  out.cluster = extents(rest, ".reqnctapercluster");
  return out;
}

}  // namespace kiln::toolchain
