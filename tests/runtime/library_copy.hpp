// Several copies of the library in one process, as when two wheels each bring a copy.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "kiln/kiln.hpp"
#include "support/places.hpp"

namespace kiln::testing {

inline constexpr const char* kManifest =
    "format = 1\n[template]\nname = \"s\"\nsource = \"s.cu\"\ninstantiate = \"f<{N}>\"\n"
    "[param.N]\nkind = \"int\"\nrange = [1, 100000]\n"
    "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
    "[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n";
inline constexpr const char* kSource = "template <int N> __global__ void f(float* out) { *out = N; }\n";

/// Another copy of the library in this process, through its C ABI.
class Copy {
 public:
  explicit Copy(const std::string& folder) {
    std::filesystem::create_directories(folder);
    const std::string file = folder + "/libkiln.so";
    std::filesystem::copy_file(places::kSharedLibrary, file);
    library_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library_) << ::dlerror();
    EXPECT_NE(find<decltype(&kiln_process_seal)>("kiln_process_seal"), &kiln_process_seal) << "the same copy";
  }
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }
  void seal_process() const { EXPECT_EQ(find<decltype(&kiln_process_seal)>("kiln_process_seal")(), KILN_OK); }
  kiln_template* open(const Options& from) const {
    kiln_options o{};
    o.struct_size = sizeof o;
    o.hermetic = 1;
    o.cache_dir = from.cache_dir.c_str();
    o.cuda_home = from.cuda_home.empty() ? nullptr : from.cuda_home.c_str();
    const std::string worker = std::string(places::kBuildDirectory) + "/kiln-worker";
    o.worker = worker.c_str();
    kiln_service* service = nullptr;
    kiln_template* out = nullptr;
    EXPECT_EQ(find<decltype(&kiln_service_create)>("kiln_service_create")(&o, &service), KILN_OK);
    EXPECT_EQ(find<decltype(&kiln_service_add_template)>("kiln_service_add_template")(service, kManifest,
                                                                                      kSource, nullptr),
              KILN_OK);
    EXPECT_EQ(find<decltype(&kiln_service_open)>("kiln_service_open")(service, "s", KILN_DEVICE_NONE,
                                                                      "sm_90a", &out),
              KILN_OK);
    return out;
  }
  kiln_status compile(kiln_template* t, int n) const {
    const kiln_value value{KILN_VALUE_INTEGER, 0, n, nullptr};
    kiln_image image{};
    image.struct_size = sizeof image;
    return find<decltype(&kiln_template_compile)>("kiln_template_compile")(t, nullptr, &value, 1, &image);
  }

 private:
  void* library_ = nullptr;
};

}  // namespace kiln::testing
