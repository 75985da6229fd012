// Other compilers read the shipped templates: clang and clangd with the flags of
// templates/.clangd, and nvcc, which compiles them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/file.hpp"
#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "library/work_lists.hpp"
#include "manifest/parameter_value.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"
#include "toolchain/cubin.hpp"

namespace kiln::source {
namespace {

namespace fs = std::filesystem;
const std::string kTemplates = std::string(places::kSourceDirectory) + "/templates";

struct Ran {
  int status = -1;
  std::string said;  ///< stdout and stderr
};
Ran run(const std::string& directory, const std::string& command) {
  Ran out;
  FILE* pipe = ::popen(("cd '" + directory + "' && " + command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.said.append(buffer, n);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return out;
}

/// Path of the first of `names` that is in PATH or in `bin` of a toolkit.
std::string program(const std::vector<std::string>& names) {
  std::vector<std::string> directories;
  for (const char* home : {"KILN_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"})
    if (const char* value = std::getenv(home)) directories.push_back(std::string(value) + "/bin");
  if (const char* path = std::getenv("PATH"))
    for (const std::string& directory : base::split(path, ':')) directories.push_back(directory);
  directories.push_back("/usr/local/cuda/bin");
  for (const std::string& name : names)
    for (const std::string& directory : directories)
      if (const std::string file = directory + '/' + name; ::access(file.c_str(), X_OK) == 0) return file;
  return {};
}

/// The flags that templates/.clangd adds, quoted for the shell.
std::string clangd_flags() {
  std::string out;
  for (const std::string& line : base::split(base::read_file(kTemplates + "/.clangd")->bytes, '\n'))
    if (line.starts_with("    - ")) out += " '" + line.substr(6) + '\'';
  return out;
}

/// The name of every shipped source: NAME, and NAME@reference.
std::vector<std::string> shipped() {
  std::vector<std::string> out;
  Catalog catalog({kTemplates}, {}, library::work_lists());
  for (const std::string& name : catalog.names()) {
    out.push_back(name);
    if (catalog.open(name)->manifest.reference) out.push_back(name + "@reference");
  }
  return out;
}

std::vector<std::string> shipped_files() {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(kTemplates)) {
    const std::string extension = entry.path().extension();
    if ((extension == ".cu" || extension == ".cuh") && entry.path().filename() != "editor.cuh")
      out.push_back(fs::relative(entry.path(), kTemplates));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string test_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

class OtherCompiler : public ::testing::TestWithParam<std::string> {
 protected:
  /// A file that instantiates the first specialisation of the first [[prewarm]] row. Without rows
  /// it takes each parameter's first value.
  std::string unit() {
    const std::string name = GetParam().substr(0, GetParam().find('@'));
    const bool reference = name != GetParam();
    Catalog catalog({kTemplates}, {}, library::work_lists());
    const auto origin = catalog.open(name);
    const Manifest& manifest = origin->manifest;
    std::vector<Parameter> values;
    if (!manifest.prewarm.empty()) {
      for (const auto& [parameter, texts] : manifest.prewarm.front().values)
        values.push_back({parameter, texts.front()});
    } else {
      for (const ParameterSpec& p : manifest.parameters)
        if (p.default_value.empty()) values.push_back({p.name, parameter_text(p, p.choices.at(0).value)});
    }
    std::vector<NamedValue> named;
    for (const Parameter& p : values) named.push_back({p.name, Value(std::string_view(p.value))});
    const Instantiation unit = instantiate(
        origin, resolve(manifest, positional(manifest, named), base::Arch::parse("sm_90a"), Archs::any),
        reference ? Which::reference : Which::kernel);
    const std::string file = scratch_.path() + "/unit.cu";
    base::write_file(file, "#include \"" + (reference ? origin->reference : origin->kernel).path +
                               "\"\nvoid* kiln_instance() { return reinterpret_cast<void*>(&" +
                               unit.name_expression + "); }\n");
    return file;
  }
  base::TempDir scratch_{"kiln-compilers"};
};

using Clang = OtherCompiler;
TEST_P(Clang, ReadsItByTheFlagsOfClangd) {
  KILN_NIGHTLY_ONLY();
  const std::string clang = program({"clang++", "clang++-14"});
  if (clang.empty()) GTEST_SKIP() << "no clang++ on this machine (package clang)";
  const Ran r = run(kTemplates, clang + clangd_flags() + " -Wall -Werror -fsyntax-only " + unit());
  EXPECT_EQ(r.status, 0) << r.said;
}
INSTANTIATE_TEST_SUITE_P(Templates, Clang, ::testing::ValuesIn(shipped()),
                         [](const auto& row) { return test_name(row.param); });

TEST(ClangFlags, LeaveErrorsToBeSeen) {
  const std::string clang = program({"clang++", "clang++-14"});
  if (clang.empty()) GTEST_SKIP() << "no clang++ on this machine (package clang)";
  const base::TempDir scratch("kiln-compilers");
  base::write_file(
      scratch.path() + "/unit.cu",
      "#include \"kiln/reduce.cuh\"\n__global__ void k(float* x) { *x = kiln::shufle_xor(*x, 1); }\n");
  const Ran r = run(kTemplates, clang + clangd_flags() + " -fsyntax-only " + scratch.path() + "/unit.cu");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.said.find("shufle_xor"), std::string::npos) << r.said;
}

/// The lines of `clangd --check` that an editor would underline: "E[time] [code] Line N: ...".
std::string underlined(const std::string& said) {
  std::string out;
  for (const std::string& line : base::split(said, '\n'))
    if (line.starts_with("E[") && line.find("] [") != std::string::npos &&
        line.find("] Line ") != std::string::npos)
      out += line + '\n';
  return out;
}

class Clangd : public ::testing::TestWithParam<std::string> {};
TEST_P(Clangd, UnderlinesNothingIn) {
  KILN_NIGHTLY_ONLY();
  const std::string clangd = program({"clangd", "clangd-14"});
  if (clangd.empty()) GTEST_SKIP() << "no clangd on this machine (package clangd)";
  const Ran r = run("/", clangd + " --clang-tidy=false --check=" + kTemplates + '/' + GetParam());
  EXPECT_NE(r.said.find("All checks completed"), std::string::npos) << r.said;
  EXPECT_EQ(underlined(r.said), "");
}
INSTANTIATE_TEST_SUITE_P(Templates, Clangd, ::testing::ValuesIn(shipped_files()),
                         [](const auto& row) { return test_name(row.param); });

TEST(ClangdConfiguration, IsReadBesideCopiedTemplatesAndLetsErrorsBeSeen) {
  const std::string clangd = program({"clangd", "clangd-14"});
  if (clangd.empty()) GTEST_SKIP() << "no clangd on this machine (package clangd)";
  const base::TempDir scratch("kiln-compilers");
  fs::copy(kTemplates + "/kiln", scratch.path() + "/kiln", fs::copy_options::recursive);
  fs::copy(kTemplates + "/.clangd", scratch.path() + "/.clangd");
  std::string source = base::read_file(kTemplates + "/norm/rms_norm.cu")->bytes;
  const std::size_t at = source.find("pdl_wait()");
  ASSERT_NE(at, std::string::npos);
  base::write_file(scratch.path() + "/rms_norm.cu", source.replace(at, 10, "pdl_wiat()"));
  const Ran r = run("/", clangd + " --clang-tidy=false --check=" + scratch.path() + "/rms_norm.cu");
  EXPECT_NE(underlined(r.said).find("pdl_wiat"), std::string::npos) << r.said;
}

using Nvcc = OtherCompiler;
TEST_P(Nvcc, CompilesIt) {
  KILN_NIGHTLY_ONLY();
  const std::string nvcc = program({"nvcc"});
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  const std::string out = scratch_.path() + "/unit.cubin";
  const Ran r = run(scratch_.path(),
                    nvcc + " -cubin -arch=sm_90a -std=c++17 -I " + kTemplates + " -o " + out + ' ' + unit());
  ASSERT_EQ(r.status, 0) << r.said;
  const std::string image = base::read_file(out)->bytes;
  const auto facts = toolchain::read_cubin({reinterpret_cast<const std::byte*>(image.data()), image.size()});
  EXPECT_EQ(facts.kernels.size(), 1u) << r.said;
}
INSTANTIATE_TEST_SUITE_P(Templates, Nvcc, ::testing::ValuesIn(shipped()),
                         [](const auto& row) { return test_name(row.param); });

}  // namespace
}  // namespace kiln::source
