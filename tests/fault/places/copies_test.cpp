// Two copies of the library in one process, for example from two wheels. Both use the same keys of one
// store at the same time, through the C ABI.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "kiln/kiln.h"
#include "support/places.hpp"
#include "tests/fault/store/fixture.hpp"
#include "tests/support/toolkit.hpp"

namespace kiln::cache::test {
namespace {

constexpr int kKeys = 4, kThreadsPerCopy = 3;

struct Copy {
  void* library = nullptr;
  decltype(&kiln_service_create) create = nullptr;
  decltype(&kiln_service_open) open = nullptr;
  decltype(&kiln_template_compile) compile = nullptr;
  decltype(&kiln_image_release) release = nullptr;
  decltype(&kiln_service_destroy) destroy = nullptr;
  decltype(&kiln_last_error) last_error = nullptr;
  kiln_service* service = nullptr;
  kiln_template* rms_norm = nullptr;

  explicit Copy(const std::string& path) : library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library) return;
    const auto find = [this](const char* name, auto& to) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, name));
    };
    find("kiln_service_create", create), find("kiln_service_open", open);
    find("kiln_template_compile", compile), find("kiln_image_release", release);
    find("kiln_service_destroy", destroy), find("kiln_last_error", last_error);
  }
  std::string start(const std::string& cache, const std::string& cuda_home) {
    const std::string templates = std::string(places::kSourceDirectory) + "/templates",
                      worker = std::string(places::kBuildDirectory) + "/kiln-worker";
    kiln_options options{};
    options.struct_size = sizeof options;
    options.hermetic = 1;
    options.cache_dir = cache.c_str(), options.template_path = templates.c_str();
    options.cuda_home = cuda_home.c_str(), options.worker = worker.c_str();
    if (create(&options, &service) != KILN_OK ||
        open(service, "rms_norm", KILN_DEVICE_NONE, "sm_90a", &rms_norm) != KILN_OK)
      return last_error()->message;
    return "";
  }
};

struct Made {
  std::string image, key, error;
  int outcome = -1;
};

Made make(Copy& copy, int width) {
  kiln_value values[2] = {{KILN_VALUE_DTYPE, 0, 2, nullptr}, {KILN_VALUE_INTEGER, 0, width, nullptr}};
  kiln_image image{};
  image.struct_size = sizeof image;
  Made out;
  if (copy.compile(copy.rms_norm, nullptr, values, 2, &image) != KILN_OK) {
    out.error = copy.last_error()->message;
    return out;
  }
  out.image.assign(static_cast<const char*>(image.bytes), image.size);
  out.key = image.key, out.outcome = image.outcome;
  copy.release(&image);
  return out;
}

TEST(TwoCopiesOfTheLibrary, CompileEachKeyOnceAndAgree) {
  const auto toolkit = kiln::testing::real_toolkit();
  if (!toolkit.has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
  const char* home = std::getenv("KILN_CUDA_HOME");
  const base::TempDir dir("kiln-copies-test-");
  const std::string cache = dir.path() + "/store";
  std::vector<Copy> copies;
  for (const char* name : {"/a/lib/kiln", "/b/lib/kiln"}) {  // without installed files around them
    const std::string folder = dir.path() + name;
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(places::kSharedLibrary, folder + "/libkiln.so");
    copies.emplace_back(folder + "/libkiln.so");
    ASSERT_TRUE(copies.back().library) << ::dlerror();
    ASSERT_EQ(copies.back().start(cache, home ? home : ""), "");
  }
  ASSERT_NE(copies[0].create, copies[1].create) << "the loader took them for one";

  std::uint64_t compiled = 0, waited = 0, disk = 0, memory = 0, failed = 0, different = 0;
  for (int key = 0; key < kKeys; ++key) {
    std::vector<Made> made(2 * kThreadsPerCopy);
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2 * kThreadsPerCopy; ++i)
      threads.emplace_back([&, i] {
        ++ready;
        base::poll_until(soon(), [&] { return ready == 2 * kThreadsPerCopy; });
        made[i] = make(copies[i % 2], 1024 + 8 * key);
      });
    for (auto& thread : threads) thread.join();
    for (const Made& one : made) {
      if (!one.error.empty()) std::fprintf(stderr, "%s\n", one.error.c_str());
      failed += !one.error.empty();
      different += one.image != made[0].image || one.key != made[0].key || one.image.empty();
      compiled += one.outcome == KILN_OUTCOME_COMPILED, waited += one.outcome == KILN_OUTCOME_WAITED;
      disk += one.outcome == KILN_OUTCOME_DISK, memory += one.outcome == KILN_OUTCOME_MEMORY;
    }
  }
  for (Copy& copy : copies) copy.destroy(copy.service);
  struct stat place {};
  ASSERT_EQ(::stat((cache + "/v1").c_str(), &place), 0);
  const std::string shm = "/dev/shm/kiln-" + std::to_string(::geteuid()) + "-" +
                          std::to_string(place.st_dev) + "-" + std::to_string(place.st_ino);
  ::unlink((shm + ".flight").c_str()), ::unlink((shm + ".board").c_str());
  const auto store = Store::open({cache});
  report("two copies of the library in one process", {{"keys", kKeys},
                                                      {"callers each", 2 * kThreadsPerCopy},
                                                      {"compiled", compiled},
                                                      {"waited", waited},
                                                      {"disk", disk},
                                                      {"memory", memory},
                                                      {"failed", failed},
                                                      {"different", different},
                                                      {"entries", store->stats().entries}});
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(different, 0u);
  EXPECT_EQ(store->stats().entries, static_cast<std::uint64_t>(kKeys));
  EXPECT_EQ(compiled, static_cast<std::uint64_t>(kKeys));
}

}  // namespace
}  // namespace kiln::cache::test
