// Profiles of JIT compilers that only know a directory: where it is, which files count, and what they depend on.
//
// A profile is a TOML file NAME.toml:
//
//     summary = "one line"
//     served_by = "kiln.caches.triton"     what makes the directory unnecessary; `kiln wrap` then leaves it alone
//     [[directory]]                         the first place that applies is the directory
//     variable = "TRITON_HOME"              applies when this variable is set and not empty
//     append = ".triton/cache"              what follows the variable's value
//     [[directory]]
//     path = "~/.triton/cache"              always applies; {user} is the user's name
//     [files]
//     include = ["**"]                      all files, when it is missing
//     exclude = ["**/*.lock"]
//     immutable = false                     true: no file is written to after it has its name
//     embeds_paths = true                   true: files name the directory, so it cannot be elsewhere
//     [depends]
//     distributions = ["triton"]            Python distributions whose versions count
//     facts = ["gpu", "driver", "cuda", "host", "python"]
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kiln::cli {

struct Profile {
  /// One place where the directory may be.
  struct Place {
    std::string variable, append, path;
  };
  std::string name, summary;
  std::string served_by;  ///< the cache of kiln that makes the directory unnecessary; mostly empty
  std::string file;       ///< that defines it
  std::vector<Place> places;
  std::vector<std::string> include, exclude;
  bool immutable = false, embeds_paths = false;
  std::vector<std::string> distributions, facts;
};

/// The directories of profiles, in the order of the search: KILN_CACHES_PROFILES, the user's directory, the
/// installed one.
std::vector<std::string> profile_directories();

/// The profile of this name, from the first directory that has it. Nothing when there is none. Throws
/// Error(manifest) that names file and line.
std::optional<Profile> find_profile(const std::string& name);
/// All profiles by name. A file that cannot be read as a profile is left out with a warning.
std::vector<Profile> all_profiles();

/// Throws Error(manifest).
Profile parse_profile(const std::string& text, const std::string& name, const std::string& file);

/// The directory of the profile for this process's environment. Throws Error(invalid_argument) when no place
/// applies.
std::string directory_of(const Profile& profile);

}  // namespace kiln::cli
