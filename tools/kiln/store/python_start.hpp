// The sitecustomize.py that switches kiln's caches on in Python programs.
#pragma once

#include <string>

namespace kiln::cli {

/// The directory with kiln's sitecustomize.py; empty where it is not installed.
std::string start_directory();

/// True for a directory whose sitecustomize.py is kiln's, of whatever version.
bool has_kiln_start(const std::string& directory);

}  // namespace kiln::cli
