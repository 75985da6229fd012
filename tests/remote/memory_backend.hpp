// A backend whose server is a few maps in this process. Nodes of a test that share one see each other's
// entries and leases, and the test can make it fail.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/fleet/backend.hpp"

namespace kiln::testing {

/// Thread-safe.
class MemoryBackend : public fleet::Backend {
 public:
  void get(std::span<const Key> keys, base::Deadline, const Each& each) override {
    for (std::size_t i = 0; i < keys.size(); ++i) each(i, value_of(keys[i]));
  }

  fleet::Outcome put(const Key& key, std::string row, std::string envelope, base::Deadline) override {
    const std::lock_guard lock(mutex_);
    if (!fault_) return fault_;
    rows_[key.specialisation][key.toolchain.hex()] = std::move(row);
    entries_[key] = std::move(envelope);
    return {};
  }

  std::vector<fleet::Rows> list(std::span<const Digest> specialisations, base::Deadline) override {
    const std::lock_guard lock(mutex_);
    std::vector<fleet::Rows> out;
    for (const Digest& specialisation : specialisations) {
      fleet::Rows& rows = out.emplace_back(fleet::Rows{{fault_}, {}});
      if (fault_) rows.rows.assign(rows_[specialisation].begin(), rows_[specialisation].end());
    }
    return out;
  }

  fleet::LeaseAnswers lease(const std::vector<fleet::LeaseRequest>& requests,
                            const fleet::LeasePolicy& policy, base::Deadline) override {
    const std::lock_guard lock(mutex_);
    fleet::LeaseAnswers out;
    out.fault = fault_.fault;
    for (const fleet::LeaseRequest& request : requests) out.answers.push_back(answer(request, policy));
    return out;
  }

  std::vector<fleet::Outcome> report(std::span<const std::string> rows, base::Deadline) override {
    const std::lock_guard lock(mutex_);
    if (fault_) missed_.insert(missed_.end(), rows.begin(), rows.end());
    return std::vector<fleet::Outcome>(rows.size(), fault_);
  }

  std::vector<fleet::ServerStatus> health() const override {
    const std::lock_guard lock(mutex_);
    fleet::ServerStatus status;
    status.name = "memory";
    status.last_error = fault_ ? "" : fleet::text_of(fault_.fault, fault_.detail);
    return {status};
  }

  /// From now on every request ends like this; with Fault::none the server is well again.
  void fail(fleet::Fault fault, const std::string& detail = "as the test wants") {
    const std::lock_guard lock(mutex_);
    fault_ = {fault, fault == fleet::Fault::none ? "" : detail};
  }
  /// What lies under an entry's name, to be looked at or spoilt.
  std::string& entry(const Key& key) { return entries_[key]; }
  std::vector<std::string> missed() const {
    const std::lock_guard lock(mutex_);
    return missed_;
  }
  std::size_t leases() const {
    const std::lock_guard lock(mutex_);
    return leases_.size();
  }

 private:
  struct Lease {
    std::string token;
    base::Clock::time_point until;
  };

  fleet::Value value_of(const Key& key) const {
    const std::lock_guard lock(mutex_);
    fleet::Value out{{fault_}};
    const auto found = entries_.find(key);
    if (fault_.fault != fleet::Fault::none || found == entries_.end()) return out;
    out.kind = fleet::Value::Kind::bytes;
    out.bytes = found->second;
    return out;
  }

  /// REQUIRES: the mutex.
  fleet::LeaseAnswer answer(const fleet::LeaseRequest& request, const fleet::LeasePolicy& policy) {
    using Kind = fleet::LeaseRequest::Kind;
    fleet::LeaseAnswer out;
    if (!fault_) {
      out.state = fault_.fault == fleet::Fault::refused ? fleet::LeaseAnswer::State::refused
                                                        : fleet::LeaseAnswer::State::unanswered;
      return out;
    }
    out.state = fleet::LeaseAnswer::State::answered;
    const auto now = base::Clock::now();
    auto lease = leases_.find(request.key);
    if (lease != leases_.end() && lease->second.until <= now) {
      leases_.erase(lease);
      lease = leases_.end();
    }
    const bool is_ours = lease != leases_.end() && lease->second.token == request.token;
    switch (request.kind) {
      case Kind::look:
        if (lease != leases_.end()) out.holder = lease->second.token;
        break;
      case Kind::acquire:
      case Kind::regain:
        out.granted = lease == leases_.end();
        if (out.granted) leases_[request.key] = {request.token, now + policy.lease};
        break;
      case Kind::resume:
      case Kind::renew:
        out.granted = is_ours;
        if (is_ours) lease->second.until = now + policy.lease;
        break;
      case Kind::release:
        out.granted = is_ours;
        if (is_ours) leases_.erase(lease);
        break;
    }
    const bool looks =
        request.kind == Kind::look || request.kind == Kind::acquire || request.kind == Kind::resume;
    if (const auto found = entries_.find(request.key); looks && found != entries_.end())
      out.entry = found->second;
    return out;
  }

  mutable std::mutex mutex_;  // guards what follows
  fleet::Outcome fault_;      // of every request; true: none
  std::map<Key, std::string> entries_;
  std::map<Digest, std::map<std::string, std::string>> rows_;
  std::map<Key, Lease> leases_;
  std::vector<std::string> missed_;
};

}  // namespace kiln::testing
