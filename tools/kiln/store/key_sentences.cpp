// How a difference of two keys is said.
#include "tools/kiln/store/key_sentences.hpp"

#include <algorithm>

#include "tools/kiln/store/key_difference.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kHeadersByName = 10, kBuildId = 12;

bool is_file(const KeyDifference& d) {
  return d.field == "include" || d.field == "header" || d.field == "project-header";
}

/// "NVRTC (13.0, build-id 0123456789ab)"
std::string identity(const std::string& build_id, const std::string& version) {
  const std::string build = build_id.empty() ? "none" : "build-id " + build_id.substr(0, kBuildId);
  return version.empty() ? build : version + ", " + build;
}

std::string of_file(const KeyDifference& d, const Sides& sides) {
  const std::string what = d.field == "header" ? d.name + " of the toolkit" : d.name;
  const std::string detail = d.detail.empty() ? "" : " (" + d.detail + ')';
  if (is_missing(d, sides)) return what + " is not found any more" + detail;
  if (!d.other) return what + " is included " + sides.one + " only" + detail;
  if (!d.one) return what + " is included " + sides.other + " only" + detail;
  const auto path = [](const std::string& text) { return text.substr(0, text.find(' ')); };
  if (d.one->find(' ') != std::string::npos)
    return d.detail + " is " + path(*d.one) + ' ' + sides.one + " and " + path(*d.other) + ' ' + sides.other;
  return what + " has changed" + detail;
}

std::string of_value(const std::string& what, const KeyDifference& d, const Sides& sides) {
  if (!d.other) return what + " is " + *d.one + ' ' + sides.one + ", and there is none " + sides.other;
  if (!d.one) return what + " is " + *d.other + ' ' + sides.other + ", and there is none " + sides.one;
  return what + " is " + *d.one + ' ' + sides.one + " and " + *d.other + ' ' + sides.other;
}

/// Its name is part of its value.
std::string of_option(const std::string& what, const KeyDifference& d, const Sides& sides) {
  if (!d.other) return what + *d.one + " is given " + sides.one + " only";
  if (!d.one) return what + *d.other + " is given " + sides.other + " only";
  return what + "is " + *d.one + ' ' + sides.one + " and " + *d.other + ' ' + sides.other;
}

}  // namespace

bool is_missing(const KeyDifference& d, const Sides& sides) {
  return d.field == "include" && !d.other &&
         std::any_of(sides.other_missing.begin(), sides.other_missing.end(),
                     [&](const std::string& spelling) { return d.detail.starts_with(spelling + " in "); });
}

std::string sentence(const KeyDifference& d, const Sides& sides) {
  if (d.field == "order") return "the same files and options come in another order";
  if (is_file(d)) return of_file(d, sides);
  if (d.field == "source") return "the template's source has changed";
  if (d.field == "option") return of_option("option ", d, sides);
  if (d.field == "kiln-option") return of_option("kiln's own option ", d, sides);
  const std::string none, &one = d.one ? *d.one : none, &other = d.other ? *d.other : none;
  if (d.field == "nvrtc")
    return of_value("NVRTC", {"", "", identity(one, sides.one_nvrtc), identity(other, sides.other_nvrtc)},
                    sides);
  if (d.field == "builtins")
    return of_value("NVRTC's builtins library", {"", "", identity(one, ""), identity(other, "")}, sides);
  if (d.field == "parameter") return of_value(d.name, d, sides);
  if (d.field == "facts") return of_value("the version of kiln's facts", d, sides);
  if (d.field == "kiln-key") return of_value("the version of the key", d, sides);
  if (d.field == "name") return of_value("the name expression", d, sides);
  if (d.field == "entry") return of_value("the entry point " + d.name, d, sides);
  if (d.field == "global" || d.field == "export") return of_value("the " + d.field + ' ' + d.name, d, sides);
  if (d.field == "replace") return of_value("the header in the place of " + d.name, d, sides);
  return of_value(d.name.empty() ? d.field : d.field + ' ' + d.name, d, sides);
}

std::vector<std::string> sentences(const std::vector<KeyDifference>& differences, const Sides& sides) {
  std::vector<std::string> out;
  const bool parameters = std::any_of(differences.begin(), differences.end(),
                                      [](const KeyDifference& d) { return d.field == "parameter"; });
  std::size_t headers = 0;
  for (const KeyDifference& d : differences) {
    const bool text = d.field == "name" || d.field == "entry" || d.field == "global" || d.field == "export";
    if (text && parameters && d.one && d.other) continue;  // follows from them
    if (d.field == "header" && ++headers > kHeadersByName) continue;
    out.push_back(sentence(d, sides));
  }
  if (headers > kHeadersByName)
    out.push_back("and " + counted(headers - kHeadersByName, "other header") + " of the toolkit");
  return out;
}

}  // namespace kiln::cli
