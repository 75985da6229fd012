// A template as JSON.
#pragma once

#include "manifest/catalog.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// The template's element in the list of all templates.
Json json_summary(const source::Template& origin);
/// Everything about the template.
Json json_of(const source::Template& origin);

}  // namespace kiln::cli
