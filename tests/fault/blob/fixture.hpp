// Blobs under faults. Whatever happens, a blob that is found has the bytes that somebody put.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <string>

#include "base/log.hpp"
#include "fault.hpp"
#include "runtime/blob/blob_contents.hpp"
#include "runtime/service/service.hpp"
#include "support/processes.hpp"
#include "support/tree.hpp"

namespace kiln::runtime::test {

using fault::Children;
using fault::Shared;
using testing::noise;
using testing::soon;

class BlobFault : public ::testing::Test {
 protected:
  BlobFault() {
    base::set_log_sink([](base::Level, std::string_view) {});
  }
  ~BlobFault() override {
    kiln_fault_arm(nullptr);
    base::set_log_sink(nullptr);
    struct stat status {};
    if (::stat((tree_.at("cache") + "/v1").c_str(), &status) != 0) return;
    const std::string base = "/dev/shm/kiln-" + std::to_string(::geteuid()) + '-' +
                             std::to_string(status.st_dev) + '-' + std::to_string(status.st_ino);
    ::unlink((base + ".flight").c_str());
    ::unlink((base + ".board").c_str());
  }
  Options options() const {
    Options o = Options::hermetic();
    o.cache_dir = tree_.at("cache");
    return o;
  }
  static BlobSpace& space_of(Service& service) { return service.blobs().open({"s", "v1"}); }
  static BlobSpace::Put put(BlobSpace& space, const std::string& key, std::string_view content) {
    std::string why;
    return space.put(key, content, nullptr, why);
  }
  /// The blob as a process without faults finds it.
  std::string found(const std::string& key) const {
    Service service(options());
    const auto got = space_of(service).get(key);
    return got ? std::string(got->view) : kAbsent;
  }
  std::string data_file() const { return tree_.at("cache") + "/v1/data.mdb"; }

  static constexpr const char* kAbsent = "(absent)";
  testing::Tree tree_;
};

}  // namespace kiln::runtime::test
