// kiln lint: reports wrong, unused and missing parts of manifests.
#pragma once

#include <array>
#include <string_view>

#include "tools/kiln/cli/command.hpp"

namespace kiln::cli {

class Context;

/// The ids of the findings. They are stable, because scripts name them in --allow.
inline constexpr std::array<std::string_view, 28> kLintIds = {
    "manifest",         "missing-file",     "unused-parameter", "unused-derive",        "unused-export",
    "unused-runtime",   "unused-tensormap", "shape-in-define",  "no-reference",         "no-tolerance",
    "no-shape",         "no-doc",           "no-summary",       "no-prewarm",           "no-cost",
    "no-limits",        "not-compiled",     "compile",          "argument-layout",      "block",
    "cluster",          "debris",           "spills",           "performance-warnings", "unpublishable",
    "computed-include", "strict-candidate", "tensormap"};

void add_lint(Command app, Context& context);

}  // namespace kiln::cli
