// A backend whose server is a few maps in this process. Nodes of a test that share a backend see each other's
// entries and leases. A test can make the backend fail.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/fleet/upkeep.hpp"

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
    if (envelope.size() > most_bytes_) return {fleet::Fault::refused, "as the test wants"};
    rows_[key.specialisation][key.toolchain.hex()] = std::move(row);
    entries_[key] = std::move(envelope);
    return {};
  }

  std::vector<fleet::Rows> list(std::span<const Digest> specialisations, base::Deadline) override {
    const std::lock_guard lock(mutex_);
    std::vector<fleet::Rows> out;
    for (const Digest& specialisation : specialisations) {
      fleet::Rows& rows = out.emplace_back(fleet::Rows{{fault_}, {}});
      const auto found = rows_.find(specialisation);
      if (fault_ && found != rows_.end()) rows.rows.assign(found->second.begin(), found->second.end());
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
    for (const std::string& row : rows)
      if (fault_) missed_.emplace_back(++last_id_, row);
    return std::vector<fleet::Outcome>(rows.size(), fault_);
  }

  std::vector<fleet::ServerStatus> health() const override {
    const std::lock_guard lock(mutex_);
    fleet::ServerStatus status;
    status.name = "memory";
    status.last_error = fault_ ? "" : fleet::text_of(fault_.fault, fault_.detail);
    return {status};
  }

  fleet::Upkeep& upkeep() noexcept override { return upkeep_; }

  /// From now on every request ends with this fault; Fault::none repairs the server.
  void fail(fleet::Fault fault, const std::string& detail = "as the test wants") {
    const std::lock_guard lock(mutex_);
    fault_ = {fault, fault == fleet::Fault::none ? "" : detail};
  }
  /// From now on larger entries are refused.
  void refuse_larger_than(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    most_bytes_ = bytes;
  }
  /// The bytes under an entry's name, which a test may read or damage.
  std::string& entry(const Key& key) { return entries_[key]; }
  /// Leaves a value under a name of another version of kiln.
  void leave_other_version(const std::string& name) {
    const std::lock_guard lock(mutex_);
    of_other_versions_.insert(name);
  }
  /// From now on the entry is a value of a kind that kiln never stores. A toolchain of zeros means the rows.
  void spoil(const Key& key) {
    const std::lock_guard lock(mutex_);
    spoilt_.insert(key);
  }
  /// Sets what every server reports of itself, except its name and its numbers of keys and missed rows.
  void say(fleet::ServerLook look) {
    const std::lock_guard lock(mutex_);
    look_ = std::move(look);
  }
  std::vector<std::string> missed() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [id, row] : missed_) out.push_back(row);
    return out;
  }
  std::size_t leases() const {
    const std::lock_guard lock(mutex_);
    return leases_.size();
  }

 private:
  using Stored = fleet::StoredValue::Kind;

  /// The only server of the backend.
  class Server : public fleet::ServerUpkeep {
   public:
    explicit Server(MemoryBackend& backend) : backend_(backend) {}

    fleet::Outcome reach() override {
      const std::lock_guard lock(backend_.mutex_);
      return backend_.fault_;
    }

    fleet::ServerLook look() override {
      const std::vector<fleet::StoredValue> values = backend_.values();
      const std::lock_guard lock(backend_.mutex_);
      fleet::ServerLook out;
      if (backend_.fault_) out = backend_.look_;
      static_cast<fleet::Outcome&>(out) = backend_.fault_;
      out.name = "memory";
      if (!out) return out;
      out.keys = values.size();
      out.missing = backend_.missed_.size();
      return out;
    }

    fleet::Outcome walk(Walk what, const Page& each) override {
      if (const fleet::Outcome outcome = reach(); !outcome) return outcome;
      std::vector<fleet::StoredValue> values = backend_.values();
      if (what == Walk::entries)
        std::erase_if(values, [](const fleet::StoredValue& value) { return value.kind != Stored::entry; });
      if (!values.empty()) each(values);
      return {};
    }

    fleet::Value entry(const Key& key) override { return backend_.value_of(key); }

    std::optional<bool> has_entry(const Key& key) override {
      const fleet::Value value = backend_.value_of(key);
      return value ? std::optional(value.kind != fleet::Value::Kind::absent) : std::nullopt;
    }

    std::optional<fleet::Rows> rows(const Digest& specialisation) override {
      {
        const std::lock_guard lock(backend_.mutex_);
        if (backend_.fault_ && backend_.spoilt_.contains({specialisation, {}})) return std::nullopt;
      }
      return backend_.list({&specialisation, 1}, base::Deadline::never()).front();
    }

    fleet::Erased erase_rows(const Digest& specialisation, std::span<const std::string> toolchains) override {
      const std::lock_guard lock(backend_.mutex_);
      fleet::Erased out{{backend_.fault_}, 0};
      if (!out) return out;
      auto& rows = backend_.rows_[specialisation];
      for (const std::string& toolchain : toolchains) out.count += rows.erase(toolchain);
      if (rows.empty()) backend_.rows_.erase(specialisation);
      return out;
    }

    fleet::Erased erase(const fleet::StoredValue& value) override {
      const std::lock_guard lock(backend_.mutex_);
      fleet::Erased out{{backend_.fault_}, 0};
      if (!out) return out;
      backend_.spoilt_.erase(value.key);
      if (value.kind == Stored::entry) out.count = backend_.entries_.erase(value.key);
      if (value.kind == Stored::rows) out.count = backend_.rows_.erase(value.key.specialisation);
      if (value.kind == Stored::lease) out.count = backend_.leases_.erase(value.key);
      if (value.kind == Stored::other_version) out.count = backend_.of_other_versions_.erase(value.name);
      return out;
    }

   private:
    MemoryBackend& backend_;
  };

  class TierUpkeep : public fleet::Upkeep {
   public:
    explicit TierUpkeep(MemoryBackend& backend) : backend_(backend) {}

    std::vector<std::unique_ptr<fleet::ServerUpkeep>> servers() override {
      std::vector<std::unique_ptr<fleet::ServerUpkeep>> out;
      out.push_back(std::make_unique<Server>(backend_));
      return out;
    }

    fleet::Outcome reach(const Digest&) override { return Server(backend_).reach(); }

    fleet::MissedPage missed(const std::string& after, std::size_t most) override {
      const std::lock_guard lock(backend_.mutex_);
      fleet::MissedPage out{{backend_.fault_}, {}};
      for (const auto& [id, row] : backend_.missed_)
        if (out && out.rows.size() < most && (after.empty() || id > std::stoull(after)))
          out.rows.push_back({std::to_string(id), row, row.size()});
      return out;
    }

    std::string missed_removal() const override { return ""; }

    fleet::Outcome forget(std::span<const std::string> ids) override {
      const std::lock_guard lock(backend_.mutex_);
      if (!backend_.fault_) return backend_.fault_;
      for (const std::string& id : ids)
        std::erase_if(backend_.missed_, [&](const auto& row) { return std::to_string(row.first) == id; });
      return {};
    }

   private:
    MemoryBackend& backend_;
  };

  struct Lease {
    std::string token;
    base::Clock::time_point until;
  };

  fleet::Value value_of(const Key& key) const {
    const std::lock_guard lock(mutex_);
    fleet::Value out{{fault_}};
    const auto found = entries_.find(key);
    if (fault_.fault != fleet::Fault::none || found == entries_.end()) return out;
    out.kind = spoilt_.contains(key) ? fleet::Value::Kind::other : fleet::Value::Kind::bytes;
    if (out.kind == fleet::Value::Kind::bytes) out.bytes = found->second;
    return out;
  }

  std::vector<fleet::StoredValue> values() const {
    const std::lock_guard lock(mutex_);
    std::vector<fleet::StoredValue> out;
    for (const auto& [key, entry] : entries_) out.push_back({Stored::entry, key, "entry " + key.hex()});
    for (const auto& [specialisation, rows] : rows_)
      out.push_back({Stored::rows, {specialisation, {}}, "rows " + specialisation.hex()});
    for (const auto& [key, lease] : leases_) out.push_back({Stored::lease, key, "lease " + key.hex()});
    if (!missed_.empty()) out.push_back({Stored::missed_rows, {}, "missed"});
    for (const std::string& name : of_other_versions_) out.push_back({Stored::other_version, {}, name});
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

  mutable std::mutex mutex_;  // guards all members below except upkeep_
  fleet::Outcome fault_;      // how every request ends; converts to true when it is no fault
  std::size_t most_bytes_ = std::string::npos;  // of an entry
  std::map<Key, std::string> entries_;
  std::map<Digest, std::map<std::string, std::string>> rows_;
  std::map<Key, Lease> leases_;
  std::uint64_t last_id_ = 0;
  std::vector<std::pair<std::uint64_t, std::string>> missed_;
  std::set<std::string> of_other_versions_;
  std::set<Key> spoilt_;
  fleet::ServerLook look_;
  TierUpkeep upkeep_{*this};
};

}  // namespace kiln::testing
