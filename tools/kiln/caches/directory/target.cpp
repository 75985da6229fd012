#include "tools/kiln/caches/directory/target.hpp"

#include "base/file.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/space/blobs.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {
namespace {

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text == "." || text == "..";
}

std::string absolute(const std::string& path) {
  const auto out = base::absolute(path);
  if (!out) throw Error(Errc::io, "the current directory is not known");
  const std::string normal = base::normalized(*out);
  return normal.size() > 1 && normal.ends_with('/') ? normal.substr(0, normal.size() - 1) : normal;
}

[[noreturn]] void throw_unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Profile& profile : all_profiles()) names.push_back(profile.name);
  throw Error(Errc::invalid_argument,
              "there is no profile '" + name + "'" + base::did_you_mean(name, names) +
                  "; a directory is written with a '/', as in ./" + name +
                  (names.empty() ? "" : " (profiles: " + base::join(names, ", ") + ')'));
}

}  // namespace

void add_target_arguments(Command sub, TargetArguments& arguments) {
  sub.option("what", arguments.what, "A profile, or a directory (a path with a '/')")
      .type_name("NAME|DIR")
      .required();
  sub.option("--name", arguments.name, "Keep several records apart, such as one for each model")
      .type_name("N");
  sub.option("--python", arguments.python,
             "The interpreter whose packages count;\ndefault: $VIRTUAL_ENV, else python3 of PATH")
      .type_name("PROGRAM");
}

Target target_of(const TargetArguments& arguments, Context& context) {
  Target out;
  if (is_path(arguments.what)) {
    out.root = absolute(arguments.what);
    out.record = {kDirectories, {}, arguments.name.empty() ? out.root : arguments.name};
  } else if (auto profile = find_profile(arguments.what)) {
    out.root = arguments.to.empty() ? absolute(directory_of(*profile)) : absolute(arguments.to);
    out.record = {"dir." + profile->name, {}, arguments.name.empty() ? kDefaultRecord : arguments.name};
    out.profile = std::move(profile);
  } else {
    if (arguments.to.empty() && !arguments.is_captured) throw_unknown(arguments.what);
    out.record = {kDirectories, {}, arguments.what};
  }
  if (!arguments.to.empty()) out.root = absolute(arguments.to);
  out.facts =
      out.profile ? facts_of(*out.profile, out.root, arguments.python, context) : facts_of_any(context);
  out.record.compatibility = text_of(out.facts);
  cache::check_blob_name(out.record);
  return out;
}

Json json_of(const Context& context, const Target& target) {
  Json facts = Json::array();
  for (const auto& [name, value] : target.facts) facts.push_back(name + ' ' + value);
  return {{"schema", context.schema()},
          {"name", target.record.key},
          {"profile", target.profile ? Json(target.profile->name) : Json(nullptr)},
          {"root", target.root},
          {"space", target.record.space},
          {"compatibility", facts}};
}

std::string text_of(const Target& target) {
  if (target.profile) return target.profile->name;
  return "directory " + (target.root.empty() ? target.record.key : target.root);
}

}  // namespace kiln::cli
