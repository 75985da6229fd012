// Units with small headers that count as heavy, and three pools of one worker each. Compares compiles with
// and without a precompiled header.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "base/log.hpp"
#include "compile/compiler/header_reuse.hpp"
#include "compile/fixture.hpp"

namespace kiln::testing {

namespace fs = std::filesystem;
using compile::Compiled;
using compile::HeaderSettings;
using compile::PrecompiledHeaders;
using compile::WorkerPool;

/// Settings with which small headers count as heavy, and the first compile creates the precompiled header.
inline HeaderSettings eager() {
  HeaderSettings settings;
  settings.min_files = 1;
  settings.created_by = 1;
  settings.min_front_end = 0;
  return settings;
}

class PrecompiledHeaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the worker of a sanitizer build pins no heap";
#endif
    if (std::getenv("KILN_TEST_LOG")) base::set_log_level("debug");
    ask_.toolkit = real_toolkit();
    if (!ask_.toolkit.has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    tree_.write("t/scale.toml", small_manifest("scale"));
  }
  void write_unit(const std::string& includes, const std::string& body = "out[i] = T(N + VALUE);") {
    tree_.write("t/scale.cu", small_source(includes, body));
  }
  MadeUnit made(int n) {
    ask_.values = {Dtype::f32, n};
    return make_unit(tree_.at("t"), ask_);
  }
  Compiled compile_in(
      WorkerPool& pool, const MadeUnit& m, PrecompiledHeaders* headers,
      std::function<bool()> same = [] { return true; }) {
    return compile::compile({m.unit, m.closure, m.made, false, std::move(same)}, ask_.toolkit, pool,
                            {.compile_limit = std::chrono::seconds(120)}, headers);
  }
  void expect_same(const Compiled& a, const Compiled& b, const std::string& what) {
    EXPECT_TRUE(a.image == b.image) << what;
    EXPECT_EQ(a.facts.log, b.facts.log) << what;
    EXPECT_EQ(a.facts.lowered_name, b.facts.lowered_name) << what;
    EXPECT_EQ(a.unpublishable, b.unpublishable) << what;
  }
  /// Compiles specialisations first, first + 1, ... with the headers in pools a and b by turns, and without
  /// them. Expects equal results.
  void expect_same_in_both(PrecompiledHeaders& headers, int first, int count, const std::string& what) {
    for (int n = first; n < first + count; ++n) {
      const MadeUnit m = made(n);
      expect_same(compile_in(n % 2 ? a_ : b_, m, &headers), compile_in(plain_, m, nullptr),
                  what + " N=" + std::to_string(n));
    }
  }

  Tree tree_;
  Ask ask_;
  WorkerPool a_{{.executable = kWorker, .jobs = 1}}, b_{{.executable = kWorker, .jobs = 1}},
      plain_{{.executable = kWorker, .jobs = 1}};  // each pool has its own process
};

}  // namespace kiln::testing
