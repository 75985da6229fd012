// The configuration file, $XDG_CONFIG_HOME/kiln/config.toml, as names and values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kiln::runtime {

/// The names and values of a configuration file; a missing file has none. Throws an Error(invalid_argument)
/// whose message begins with FILE:LINE.
std::vector<std::pair<std::string, std::string>> read_config_file(const std::string& path);

}  // namespace kiln::runtime
