// The directory that a command line names, and its record in the stores.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/blob/blob.hpp"
#include "tools/kiln/caches/profile/facts.hpp"
#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// The arguments that capture, restore and why share.
struct TargetArguments {
  std::string what;    ///< NAME or DIR
  std::string name;    ///< --name
  std::string python;  ///< --python
  std::string to;      ///< --to of a restore
  bool is_captured =
      false;  ///< `what` is known to be the name of a captured directory, so its root may be unknown
};
void add_target_arguments(Command sub, TargetArguments& arguments);

/// The key of a profile's record without --name.
inline constexpr const char* kDefaultRecord = "default";

struct Target {
  std::optional<Profile> profile;
  std::string root;        ///< absolute; empty when only a name is known
  cache::BlobName record;  ///< of the blob with the list of files
  Facts facts;
};

/// A word without '/' is a profile, or the name of a captured directory; else it is a directory. Throws
/// Error(invalid_argument) for neither, and for a directory that is not known.
Target target_of(const TargetArguments& arguments, Context& context);

/// The fields of --json that the three commands share.
Json json_of(const Context& context, const Target& target);
/// "flashinfer", or "directory /x" without a profile; "directory my-jit" when only a name is known.
std::string text_of(const Target& target);

}  // namespace kiln::cli
