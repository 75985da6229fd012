// Hermetic services in temporary directories: nothing from the developer's environment reaches a test.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/service/service.hpp"
#include "support/places.hpp"
#include "support/toolkit.hpp"
#include "support/tree.hpp"

namespace kiln::testing {

class ServiceTest : public ::testing::Test {
 protected:
  ~ServiceTest() override { forget(tree_.at("cache")); }
  /// Removes the flight file and board of a store, which kiln itself never unlinks.
  static void forget(const std::string& cache_dir) {
    struct stat st {};
    if (::stat((cache_dir + "/v1").c_str(), &st) != 0) return;
    const std::string base = "/dev/shm/kiln-" + std::to_string(::geteuid()) + '-' +
                             std::to_string(st.st_dev) + '-' + std::to_string(st.st_ino);
    ::unlink((base + ".flight").c_str());
    ::unlink((base + ".board").c_str());
  }
  void SetUp() override {
    toolkit_ = real_toolkit();
    if (!toolkit_.has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    tree_.write("t/scale.toml", small_manifest("scale"));
    tree_.write("t/scale.cu", small_source("#include \"a.h\"\n", "out[i] = T(N + VALUE);"));
    tree_.write("t/a.h", "#define VALUE 1\n");
  }
  Options options() const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    o.template_path = tree_.at("t");
    o.worker = std::string(places::kBuildDirectory) + "/kiln-worker";
    if (const char* home = std::getenv("KILN_CUDA_HOME")) o.cuda_home = home;
    return o;
  }
  /// Options of a machine without a compiler and without headers.
  Options slim_options() const {
    Options o = options();
    std::filesystem::create_directories(tree_.at("empty"));
    o.cuda_home = tree_.at("empty");
    return o;
  }
  /// A template that compiles until it is killed.
  void write_endless() const {
    tree_.write("t/endless.toml", small_manifest("endless"));
    tree_.write("t/endless.cu", small_source("template <int N, int M> struct F { static const int v = F<N - "
                                             "1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };\n"
                                             "template <int M> struct F<0, M> { static const int v = M; };\n",
                                             "out[i] = T(N + F<26, 1>::v);"));
  }
  static runtime::Obtained compile(runtime::Service& service, const std::string& name,
                                   std::vector<Value> values, const std::string& arch = "sm_90a") {
    return service.open(name, KILN_DEVICE_NONE, arch).compile(values);
  }

  Tree tree_;
  toolchain::Toolkit toolkit_;
};

}  // namespace kiln::testing
