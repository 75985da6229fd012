// An operator as JSON, for callers that make functions from it.
#pragma once

#include <string>

#include "manifest/bind/spec.hpp"
#include "manifest/manifest.hpp"

namespace kiln::source {

/// A JSON object: an item of `operators` in docs/schema/templates.json. Expressions are texts of the manifest.
std::string json_of(const Manifest& manifest, const BindSpec& spec);

}  // namespace kiln::source
