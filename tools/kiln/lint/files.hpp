// The files that a manifest names, and the headers that its sources reach.
#pragma once

#include <string>
#include <vector>

#include "manifest/catalog.hpp"
#include "runtime/config/config.hpp"
#include "tools/kiln/lint/lines.hpp"
#include "tools/kiln/lint/manifest.hpp"

namespace kiln::cli {

/// Absolute include directories in the order in which a compile searches them.
struct HeaderPlaces {
  std::vector<std::string> project, toolkit;
  /// Path of the header; empty when no directory has it.
  std::string find(const std::string& name) const;
  std::string find_in_project(const std::string& name) const;
};
/// `toolkit` holds the toolkit's include directories.
HeaderPlaces header_places(const source::Template& origin, const runtime::Config& config,
                           std::vector<std::string> toolkit);

LintFindings lint_files(const source::Template& origin, const HeaderPlaces& places,
                        const ManifestLines& lines);

/// Headers outside the project that the kernel's source and its project headers include, such as
/// "<cub/cub.cuh>". In order, without repeats, and without evaluating any #if.
std::vector<std::string> foreign_headers(const source::Template& origin, const HeaderPlaces& places);

}  // namespace kiln::cli
