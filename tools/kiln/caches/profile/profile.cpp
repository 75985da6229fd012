#include "tools/kiln/caches/profile/profile.hpp"

#include <dirent.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/file.hpp"
#include "base/installation.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::cli {
namespace {

constexpr const char* kFacts[] = {"gpu", "driver", "cuda", "host", "python"};

std::string home() {
  if (const auto set = base::environment("HOME"); set.starts_with('/')) return std::string(set);
  const passwd* const user = ::getpwuid(::getuid());
  return user && user->pw_dir ? user->pw_dir : "/";
}

std::string user_name() {
  for (const char* variable : {"USER", "LOGNAME"})
    if (const auto set = base::environment(variable); !set.empty()) return std::string(set);
  const passwd* const user = ::getpwuid(::getuid());
  return user && user->pw_name ? user->pw_name : std::to_string(::getuid());
}

/// Replaces {user}, and a "~/" at the begin.
std::string expanded(std::string text) {
  if (text == "~" || text.starts_with("~/")) text = home() + text.substr(1);
  constexpr std::string_view token = "{user}";
  if (const auto at = text.find(token); at != std::string::npos) text.replace(at, token.size(), user_name());
  return text;
}

/// True for a name that the space of the profile can have.
bool is_name(const std::string& text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 48 && std::all_of(text.begin(), text.end(), allowed);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(::opendir(directory.c_str()), ::closedir);
  if (!listed) return out;
  constexpr std::string_view ending = ".toml";
  while (const dirent* const entry = ::readdir(listed.get())) {
    std::string name = entry->d_name;
    if (!name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    if (is_name(name)) out.push_back(std::move(name));
  }
  return out;
}

Profile::Place place_of(const source::TomlValue& table, const std::string& file) {
  const source::TableReader in(table, "[[directory]]", file, {"variable", "append", "path"});
  Profile::Place out{in.text_or("variable", ""), in.text_or("append", ""), in.text_or("path", "")};
  if (out.variable.empty() == out.path.empty())
    in.fail(out.path.empty() ? "variable" : "path", "give either 'variable' or 'path'");
  return out;
}

}  // namespace

std::vector<std::string> profile_directories() {
  std::vector<std::string> out = base::split(base::environment("KILN_CACHES_PROFILES"), ':');
  const auto config = base::environment("XDG_CONFIG_HOME");
  out.push_back((config.starts_with('/') ? std::string(config) : home() + "/.config") + "/kiln/profiles");
  for (const std::string& directory : base::candidates_of({.below = "share/kiln/profiles",
                                      .configured = KILN_INSTALL_DATADIR "/kiln/profiles",
                                      .beside = ""})) {
    if (::access(directory.c_str(), R_OK) != 0) continue;
    out.push_back(directory);
    break;
  }
  return out;
}

Profile parse_profile(const std::string& text, const std::string& name, const std::string& file) {
  const source::TomlValue tree = source::parse_toml(text, file);
  const source::TableReader in(tree, "profile", file,
                               {"summary", "served_by", "directory", "files", "depends"});
  Profile out;
  out.name = name, out.file = file;
  out.summary = in.text_or("summary", "");
  out.served_by = in.text_or("served_by", "");
  for (const source::TomlValue* table : in.tables("directory")) out.places.push_back(place_of(*table, file));
  if (out.places.empty()) in.fail("directory", "a profile needs at least one [[directory]]");
  if (const source::TomlValue* files = in.find("files")) {
    const source::TableReader table(*files, "[files]", file,
                                    {"include", "exclude", "immutable", "embeds_paths"});
    out.include = table.lines("include"), out.exclude = table.lines("exclude");
    out.immutable = table.boolean_or("immutable", false);
    out.embeds_paths = table.boolean_or("embeds_paths", false);
  }
  if (const source::TomlValue* depends = in.find("depends")) {
    const source::TableReader table(*depends, "[depends]", file, {"distributions", "facts"});
    out.distributions = table.lines("distributions"), out.facts = table.lines("facts");
    for (const std::string& fact : out.facts)
      if (std::find(std::begin(kFacts), std::end(kFacts), fact) == std::end(kFacts))
        table.fail("facts", "'" + fact + "' is no fact; expected " +
                                base::join({std::begin(kFacts), std::end(kFacts)}, ", "));
  }
  return out;
}

std::optional<Profile> find_profile(const std::string& name) {
  if (!is_name(name)) return std::nullopt;
  for (const std::string& directory : profile_directories()) {
    const std::string file = directory + '/' + name + ".toml";
    if (const auto content = base::read_file(file, std::size_t{1} << 20))
      return parse_profile(content->bytes, name, file);
  }
  return std::nullopt;
}

std::vector<Profile> all_profiles() {
  std::vector<std::string> names;
  for (const std::string& directory : profile_directories())
    for (std::string& name : names_in(directory)) names.push_back(std::move(name));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<Profile> out;
  for (const std::string& name : names) {
    try {
      if (auto profile = find_profile(name)) out.push_back(*std::move(profile));
    } catch (const Error& error) {
      base::warn(error.what());
    }
  }
  return out;
}

std::string directory_of(const Profile& profile) {
  std::vector<std::string> variables;
  for (const Profile::Place& place : profile.places) {
    if (!place.path.empty()) return base::normalized(expanded(place.path));
    const auto value = base::environment(place.variable.c_str());
    variables.push_back(place.variable);
    if (value.empty()) continue;
    std::string path = expanded(std::string(value));
    if (!place.append.empty()) path += '/' + expanded(place.append);
    if (const auto absolute = base::absolute(path)) return base::normalized(*absolute);
  }
  throw Error(Errc::invalid_argument, "the directory of profile '" + profile.name + "' is not known: set " +
                                          base::join(variables, " or "));
}

}  // namespace kiln::cli
