// Services that are nodes of a fleet: each has a cache directory of its own, and all share one signing key.
#pragma once

#include <algorithm>

#include "cache/trust/secret_key.hpp"
#include "runtime/service_fixture.hpp"

namespace kiln::testing {

using runtime::Service;

class FleetTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    if (IsSkipped()) return;
    const trust::SecretKey key = trust::SecretKey::generate();
    tree_.write("fleet.key", key.file().bytes());
    tree_.write("fleet.pub", key.public_key().file());
    ::chmod(tree_.at("fleet.key").c_str(), 0600);
  }
  Options node(const std::string& name, const std::string& url) const {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = url, o.remote_mode = "fleet", o.remote_sign = tree_.at("fleet.key");
    return o;
  }
  Options reader(const std::string& name, const std::string& url) const {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = url, o.remote_key = tree_.at("fleet.pub");
    return o;
  }
  ~FleetTest() override {
    for (const char* name : {"a", "b", "c", "d"}) forget(tree_.at(name));
  }
  static kiln_stats stats_of(Service& service) {
    kiln_stats out{};
    read(service.core().state().counters, out);
    service.core().path().fleet().read(out);
    return out;
  }
  static std::uint64_t missed(const kiln_stats& s) {
    return s.remote_miss_timeout + s.remote_miss_unreachable + s.remote_miss_refused +
           s.remote_miss_protocol + s.remote_miss_breaker;
  }
};

/// The delays of kernels in milliseconds, and their quantiles.
struct Delays {
  std::vector<double> ms;
  double p99() { return at(0.99); }
  double at(double share) {
    if (ms.empty()) return 0;
    std::sort(ms.begin(), ms.end());
    return ms[static_cast<std::size_t>(share * static_cast<double>(ms.size() - 1))];
  }
};

}  // namespace kiln::testing
