// The scan of a real toolkit: every file that a compiler reads must be in the closure.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <set>
#include <sstream>

#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

std::string toolkit() {
  for (const char* variable : {"KILN_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(variable); value && *value) return value;
  }
  return "/usr/local/cuda";
}
SearchPath search() { return {{}, {toolkit() + "/include", toolkit() + "/include/cccl"}}; }
bool there(const std::string& header) {
  for (const std::string& directory : search().toolkit) {
    if (std::filesystem::exists(directory + '/' + header)) return true;
  }
  return false;
}

/// The files of the toolkit that nvcc's preprocessor reads for a compile; empty when nvcc cannot run here.
std::vector<std::string> read_by_nvcc(const std::string& source) {
  const Tree tree;
  const std::string file = tree.write("probe.cu", source);
  const std::string command = '"' + toolkit() + "/bin/nvcc\" -arch=sm_90a -M \"" + file + "\" 2>/dev/null";
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {};
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  if (::pclose(pipe) != 0) return {};
  std::vector<std::string> files;
  std::istringstream words(out);
  for (std::string word; words >> word;) {
    std::error_code error;
    const std::string real = std::filesystem::canonical(word, error).string();
    const std::string root = std::filesystem::canonical(toolkit() + "/include", error).string();
    if (real.starts_with(root + '/')) files.push_back(real);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

class Toolkit : public ::testing::TestWithParam<const char*> {};

TEST_P(Toolkit, ClosureHoldsEveryFileThatTheCompilerReads) {
  const std::string header = GetParam();
  if (!there(header)) GTEST_SKIP() << "no " << header << " in " << toolkit();
  const std::string source = "#include <" + header + ">\n";
  ScanCache cache;
  const Closure closure = scan_closure(source, {}, search(), cache);
  EXPECT_TRUE(closure.missing.empty());
  EXPECT_TRUE(closure.edges.empty());
  EXPECT_FALSE(closure.computed);
  const std::vector<std::string> read = read_by_nvcc(source);
  if (read.empty()) GTEST_SKIP() << "nvcc cannot preprocess " << header << " here";
  std::set<std::string> known;
  for (const ClosureFile& file : closure.files) known.insert(std::filesystem::canonical(file.path).string());
  // nvcc includes cuda_runtime.h before everything, which NVRTC does not.
  const Closure before = scan_closure("#include <cuda_runtime.h>\n", {}, search(), cache);
  for (const ClosureFile& file : before.files) known.insert(std::filesystem::canonical(file.path).string());
  for (const std::string& file : read)
    EXPECT_TRUE(known.contains(file)) << file << " is read and not in the closure";
  std::cout << header << ": " << closure.files.size() << " files in the closure, " << read.size()
            << " read by nvcc\n";
}

INSTANTIATE_TEST_SUITE_P(Headers, Toolkit,
                         ::testing::Values("cuda_bf16.h", "cuda_fp8.h", "cub/block/block_reduce.cuh",
                                           "cuda/std/type_traits", "cuda/barrier", "mma.h"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

/// Prints the time of the scan over the time of memchr on the same texts, for a byte that is not in them.
/// The figure is not asserted.
TEST(ToolkitScan, IsFastEnoughForTheWarmPath) {
  if (!there("cuda_bf16.h")) GTEST_SKIP() << "no toolkit in " << toolkit();
  for (const char* header : {"cuda_bf16.h", "cub/block/block_reduce.cuh"}) {
    if (!there(header)) continue;
    ScanCache cache;
    const Closure closure = scan_closure("#include <" + std::string(header) + ">\n", {}, search(), cache);
    std::vector<std::string> texts;
    std::size_t bytes = 0;
    for (const ClosureFile& file : closure.files) {
      texts.push_back(base::read_file(file.path)->bytes);
      bytes += texts.back().size();
    }
    double scan = 1e9, search_byte = 1e9;
    std::size_t found = 0;
    for (int round = 0; round < 10; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (const std::string& text : texts) found += scan_includes(text).directives.size();
      const auto middle = std::chrono::steady_clock::now();
      for (const std::string& text : texts) found += std::memchr(text.data(), 1, text.size()) != nullptr;
      const auto end = std::chrono::steady_clock::now();
      scan = std::min(scan, std::chrono::duration<double>(middle - start).count());
      search_byte = std::min(search_byte, std::chrono::duration<double>(end - middle).count());
    }
    EXPECT_GT(found, 0u);
    std::cout << header << ": " << texts.size() << " files, " << static_cast<double>(bytes) / 1e6
              << " MB, scan " << static_cast<double>(bytes) / scan / 1e9 << " GB/s, " << scan / search_byte
              << " times memchr\n";
  }
}

}  // namespace
}  // namespace kiln::source
