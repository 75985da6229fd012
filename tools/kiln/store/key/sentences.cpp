#include "tools/kiln/store/key/sentences.hpp"

#include <algorithm>

#include "compile/key/fields.hpp"
#include "toolchain/library_identity.hpp"
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {
namespace {

using compile::FieldId;
using Is = compile::FieldKind::Is;

constexpr std::size_t kHeadersByName = 10;

/// "13.0, build-id 0123456789ab"
std::string identity(const std::string& library, const std::string& version) {
  const std::string build = toolchain::identity_text(library);
  return version.empty() ? build : version + ", " + build;
}

std::string of_file(const KeyDifference& d, const Sides& sides) {
  const std::string what = compile::is(d.field, FieldId::header) ? d.name + " of the toolkit" : d.name;
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

/// An option's name is part of its value.
std::string of_option(const std::string& what, const KeyDifference& d, const Sides& sides) {
  if (!d.other) return what + *d.one + " is given " + sides.one + " only";
  if (!d.one) return what + *d.other + " is given " + sides.other + " only";
  return what + "is " + *d.one + ' ' + sides.one + " and " + *d.other + ' ' + sides.other;
}

}  // namespace

bool is_missing(const KeyDifference& d, const Sides& sides) {
  return compile::is(d.field, FieldId::include) && !d.other &&
         std::any_of(sides.other_missing.begin(), sides.other_missing.end(),
                     [&](const std::string& spelling) { return d.detail.starts_with(spelling + " in "); });
}

std::string sentence(const KeyDifference& d, const Sides& sides) {
  if (d.field == "order") return "the same files and options come in another order";
  const compile::FieldKind* kind = compile::field_of(d.field);
  const std::string subject(kind ? kind->subject : d.field);
  const std::string none, &one = d.one ? *d.one : none, &other = d.other ? *d.other : none;
  switch (kind ? kind->is : Is::named) {
    case Is::file:
      return of_file(d, sides);
    case Is::source:
      return subject + " has changed";
    case Is::option:
      return of_option(subject + ' ', d, sides);
    case Is::library: {
      const bool versions = kind->id == FieldId::compiler;
      return of_value(subject,
                      {"", "", identity(one, versions ? sides.one_nvrtc : none),
                       identity(other, versions ? sides.other_nvrtc : none)},
                      sides);
    }
    case Is::parameter:
      return of_value(d.name, d, sides);
    case Is::value:
    case Is::format:
    case Is::section:
      return of_value(subject, d, sides);
    case Is::named:
      break;
  }
  return of_value(d.name.empty() ? subject : subject + ' ' + d.name, d, sides);
}

std::vector<std::string> sentences(const std::vector<KeyDifference>& differences, const Sides& sides) {
  std::vector<std::string> out;
  const bool parameters = std::any_of(differences.begin(), differences.end(), [](const KeyDifference& d) {
    return compile::is(d.field, FieldId::parameter);
  });
  std::size_t headers = 0;
  for (const KeyDifference& d : differences) {
    const compile::FieldKind* kind = compile::field_of(d.field);
    if (kind && kind->derived && parameters && d.one && d.other) continue;  // follows from the parameters
    if (compile::is(d.field, FieldId::header) && ++headers > kHeadersByName) continue;
    out.push_back(sentence(d, sides));
  }
  if (headers > kHeadersByName)
    out.push_back("and " + counted(headers - kHeadersByName, "other header") + " of the toolkit");
  return out;
}

}  // namespace kiln::cli
