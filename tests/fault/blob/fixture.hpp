// Blobs under faults. Whatever happens, a blob that is found has the bytes that somebody put.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
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

/// Flags by which the processes of a test tell each other how far they are.
struct Talk {
  std::atomic<bool> leased, waits, go_on;
  std::atomic<int> made;
};

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

  /// The body of a process that makes blob "k": takes its lease, waits until the test says `go_on`, calls `before_put`,
  /// and puts. Returns the exit status, 0 when the blob was stored.
  int make(const std::function<void()>& before_put = [] {}) {
    Service service(options());
    BlobSpace& space = space_of(service);
    auto got = space.lease("k", soon());
    if (!got.lease) return 1;
    talk_->leased = true;
    if (!fault::eventually([&] { return talk_->go_on.load(); })) return 2;
    before_put();
    ++talk_->made;
    std::string why;
    return space.put("k", "made", std::move(got.lease), why) == BlobSpace::Put::stored ? 0 : 3;
  }
  /// Kills a put of `fresh` in place of a blob "k" with the content `old` at every `stride`-th of its system calls that
  /// fit `calls` ("any", "data@data.mdb"), until one ends. Afterwards the blob is one of the two, never another.
  void kill_puts(const std::string& calls, const std::string& action, int stride, const std::string& old,
                 const std::string& fresh) {
    bool ended = false;
    for (int step = 1; !ended && step < kMostCalls && !HasFailure(); step += stride) {
      {
        Service service(options());
        put(space_of(service), "k", old);
      }
      Children children;
      children.start([&] {
        kiln_fault_arm((calls + ':' + std::to_string(step) + ':' + action).c_str());
        Service service(options());
        put(space_of(service), "k", fresh);
        return 0;
      });
      const int status = children.wait().front();
      EXPECT_TRUE(status == 0 || status == 128 + SIGKILL) << status;
      ended = status == 0;
      const std::string now = found("k");
      EXPECT_TRUE(now == old || now == fresh)
          << action << " at call " << step << ": " << now.size() << " bytes";
    }
    EXPECT_TRUE(ended) << action;
  }

  static constexpr const char* kAbsent = "(absent)";
  static constexpr int kMostCalls = 400;  // of one put
  testing::Tree tree_;
  Shared<Talk> talk_;
};

}  // namespace kiln::runtime::test
