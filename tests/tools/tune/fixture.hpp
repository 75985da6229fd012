// Helpers for the tune tests: a template with candidates on the fake driver. Its kernels (kernels.cpp)
// compute, and take the time that the test sets.
#pragma once

#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

class Tune : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    write("templates/by.cuh", "#pragma once\n#define TIMES *\n");
    write("templates/tuned.cu",
          "#include \"by.cuh\"\n"
          "template <int N, int THREADS> __global__ void tuned(float* out, const float* x, int n) {\n"
          "  for (int i = threadIdx.x; i < n; i += THREADS) out[i] = N TIMES x[i];\n}\n");
    write("templates/tuned.reference.cu",
          "template <int N> __global__ void tuned_reference(double* out, const float* x, int n) {\n"
          "  for (int i = 0; i < n; ++i) out[i] = double(N) * x[i];\n}\n");
    describe("");
  }
  /// Writes the manifest. `more` goes into [template]; `rule` is a [[require]] of the launch.
  void describe(const std::string& more, const std::string& candidates = "[32, 64, 256]",
                const std::string& fallback = "128", const std::string& rule = "n > 0") const {
    write("templates/tuned.toml",
          "format = 1\n[template]\nname = \"tuned\"\nsource = \"tuned.cu\"\ninstantiate = \"tuned<{N}, "
          "{THREADS}>\"\n"
          "tolerance = { f32 = 1e-6 }\n" +
              more +
              "\n[param.N]\nkind = \"int\"\nrange = [1, 64]\n"
              "[param.THREADS]\nkind = \"int\"\nvalues = [32, 64, 128, 256, 512]\ndefault = " +
              fallback + "\ntune = " + candidates +
              "\n[[require]]\nexpr = \"N != 7 || THREADS != 64\"\nmessage = \"no 64 for 7\"\n"
              "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\nshape = [\"n\"]\n"
              "[[arg]]\nname = \"x\"\ntype = \"ptr<f32>\"\nshape = [\"n\"]\n"
              "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 100\n"
              "[[require]]\nexpr = \"" +
              rule +
              "\"\nmessage = \"{THREADS} threads take no {n}\"\n"
              "[launch]\ngrid = [\"1\"]\nblock = [\"THREADS\"]\n"
              "[reference]\nsource = \"tuned.reference.cu\"\ninstantiate = \"tuned_reference<{N}>\"\ngrid = "
              "[\"1\"]\nblock = [\"1\"]\n"
              "[[prewarm]]\nN = [3, 4]\n[[prewarm]]\nN = 5\nTHREADS = 128\n");
  }
  /// An environment with a GPU. `us` is TUNE_US.
  static Environment gpu(const std::string& us = "64=5", const Environment& more = {}) {
    Environment out{
        {"KILN_LIBCUDA", places::kFakeCuda}, {"LD_PRELOAD", places::kTuneKernels}, {"TUNE_US", us}};
    for (const auto& [name, value] : more) out[name] = value;
    return out;
  }
  /// An environment without a GPU.
  static Environment no_gpu() { return {{"KILN_LIBCUDA", "/nonexistent/libcuda.so"}}; }
  static constexpr const char* kGpu = "Fake sm_90";

  Finished tune(const Arguments& values, const Environment& environment = gpu()) {
    Arguments words{"tune", "tuned", "--json"};
    words.insert(words.end(), values.begin(), values.end());
    return kiln(words, environment);
  }
  /// The THREADS that a compile for this GPU gets.
  std::string threads(const Arguments& values, const Environment& environment = gpu()) {
    Arguments words{"compile", "tuned", "--json"};
    words.insert(words.end(), values.begin(), values.end());
    const Finished r = kiln(words, environment);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.status == 0 ? r.json()["params"]["THREADS"].get<std::string>() : "";
  }
  /// A plan of the manifest's own rows: the default plan, without shipped templates.
  std::string plan() const {
    write("tuned_plan.toml",
          "[[prewarm]]\ntemplate = \"tuned\"\nN = [3, 4]\n"
          "[[prewarm]]\ntemplate = \"tuned\"\nN = 5\nTHREADS = 128\n");
    return path("tuned_plan.toml");
  }
  nlohmann::json choices(const Environment& environment = {}) {
    return kiln({"tune", "--list", "--json"}, environment).json()["choices"];
  }
};

}  // namespace kiln::test
