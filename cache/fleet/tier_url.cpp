#include "cache/fleet/tier_url.hpp"

#include "cache/fleet/redis/url.hpp"

namespace kiln::fleet {
namespace {

struct Scheme {
  std::string_view beginning;  ///< of the URLs that `parse` accepts or refuses
  TierUrl (*parse)(std::string_view text);
};

TierUrl parse_redis(std::string_view text) { return Url::parse(text); }

/// One row for each backend; the first row that fits is taken. A text of no known scheme goes to the last
/// row, whose error names the schemes.
constexpr Scheme kSchemes[] = {{"", parse_redis}};

}  // namespace

TierUrl TierUrl::parse(std::string_view text) {
  const Scheme* scheme = kSchemes;
  while (!text.starts_with(scheme->beginning)) ++scheme;
  return scheme->parse(text);
}

}  // namespace kiln::fleet
