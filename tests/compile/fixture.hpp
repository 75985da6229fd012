// Makes keys and images from templates in a temporary tree.
#pragma once

#include <gtest/gtest.h>

#include "compile/compiler/compiler.hpp"
#include "support/places.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"

namespace kiln::testing {

inline const std::string kWorker = std::string(places::kBuildDirectory) + "/kiln-worker";

struct MadeUnit {
  source::Instantiation unit;
  source::Closure closure;
  compile::MadeKey made;
};

/// The inputs of a key that a test may vary.
struct Ask {
  std::string name = "scale";
  std::vector<Value> values{Dtype::f32, 7};
  std::string arch = "sm_90a";
  std::vector<std::string> include_path{};
  toolchain::Toolkit toolkit{};
};

inline toolchain::Toolkit fake_toolkit() {
  toolchain::Toolkit t;
  t.compiler_identity = "aa11";
  t.builtins_identity = "bb22";
  return t;
}

inline MadeUnit make_unit(const std::string& directory, const Ask& ask) {
  source::Catalog catalog({directory});
  auto origin = catalog.open(ask.name);
  source::Resolved resolved = source::resolve(origin->manifest, ask.values, base::Arch::parse(ask.arch));
  source::Instantiation unit = source::instantiate(origin, std::move(resolved));
  source::SearchPath search;
  search.project = {origin->root};
  for (const auto& d : origin->manifest.compile.include_dirs)
    search.project.push_back(origin->directory + '/' + d);
  for (const auto& d : ask.include_path) search.project.push_back(d);
  search.toolkit = ask.toolkit.include_dirs;
  source::ScanCache cache;
  source::Closure closure =
      source::scan_closure(unit.source, origin->manifest.compile.extra_includes, search, cache);
  compile::MadeKey made = compile::make_key(unit, closure, ask.toolkit);
  return {std::move(unit), std::move(closure), std::move(made)};
}

/// The machine's real toolkit. Without a toolkit the test is skipped with a message.
#define KILN_REAL_TOOLKIT(name)                                        \
  const kiln::toolchain::Toolkit name = kiln::testing::real_toolkit(); \
  if (!name.has_compiler()) GTEST_SKIP() << "no NVRTC on this machine"

}  // namespace kiln::testing
