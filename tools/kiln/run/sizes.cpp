#include "tools/kiln/run/sizes.hpp"

#include "base/text.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

namespace {
constexpr std::size_t kMostSizes = 1000;
}

GivenList parse_list(std::string_view name, std::string_view text) {
  GivenList out{std::string(name), {}};
  for (std::size_t comma; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1))
    out.values.emplace_back(text.substr(0, comma));
  out.values.emplace_back(text);
  return out;
}

std::vector<GivenArguments> sizes_of(const std::vector<GivenList>& lists) {
  std::vector<GivenArguments> out(1);
  for (const GivenList& list : lists) {
    if (out.front().contains(list.name))
      throw Error(Errc::invalid_argument,
                  "'" + list.name + "' is given twice; several values are a list: " + list.name + "=1,64");
    if (out.size() * list.values.size() > kMostSizes)
      throw Error(Errc::invalid_argument,
                  "the lists of values make more than " + std::to_string(kMostSizes) + " sizes");
    std::vector<GivenArguments> longer;
    for (const GivenArguments& size : out) {
      for (const std::string& value : list.values) {
        longer.push_back(size);
        longer.back()[list.name] = value;
      }
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace kiln::cli
