#include "tests/fleet/simulation_server.hpp"

#include <stdexcept>

#include "cache/fleet/redis/lease_commands.hpp"

namespace kiln::fleet::simulation {
namespace {

bool is_lease(const std::string& key) { return key.find("}:l:") != std::string::npos; }
std::string entry_of(std::string lease) { return lease.replace(lease.find("}:l:"), 4, "}:e:"); }

Reply nil() { return {}; }
Reply number(std::int64_t value) { return {Reply::Kind::integer, value, {}, {}}; }
Reply bulk(std::string text) { return {Reply::Kind::bulk, 0, std::move(text), {}}; }
Reply ok() { return {Reply::Kind::status, 0, "OK", {}}; }

}  // namespace

void Server::expire(Micros now) {
  for (auto value = values_.begin(); value != values_.end();) {
    const auto next = std::next(value);
    if (value->second.expires && *value->second.expires <= wall(now))
      erase(value->first, Period::End::expired, now);
    value = next;
  }
}

void Server::end_period(const std::string& key, Period::End why, Micros now) {
  const auto open = open_.find(key);
  if (open == open_.end()) return;
  periods_[open->second].end = why;
  periods_[open->second].ended = now;
  open_.erase(open);
}

void Server::begin_period(const std::string& key, const std::string& token, Micros now) {
  open_[key] = periods_.size();
  Period fresh;
  fresh.lease = key, fresh.token = token, fresh.began = now;
  fresh.entry_was_there = values_.contains(entry_of(key));
  periods_.push_back(fresh);
}

/// The longest lag of a replica that fail_over() is called with.
constexpr Micros kMostLag = 2'000'000;

void Server::note(const std::string& key, Micros now) {
  const auto found = values_.find(key);
  undo_.push_back({now, key, found == values_.end() ? std::nullopt : std::optional<Value>(found->second)});
  while (undo_.front().at < now - kMostLag) undo_.pop_front();
}

void Server::erase(const std::string& key, Period::End why, Micros now) {
  note(key, now);
  end_period(key, why, now);
  values_.erase(key);
}

void Server::store(const std::string& key, Value value, const std::string& by, Micros now) {
  note(key, now);
  if (is_lease(key)) {
    const auto before = values_.find(key);
    if (before != values_.end() && before->second.bytes != value.bytes) {
      ++touched_others;
      end_period(key, Period::End::overwritten, now);
    }
    if (!open_.contains(key)) begin_period(key, by, now);
  }
  values_[key] = std::move(value);
}

Reply Server::set(const std::vector<std::string>& words, const std::string& by, Micros now) {
  Value value{words[2], {}};
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "NX" && values_.contains(words[1])) return nil();
    if (words[i] == "XX" && !values_.contains(words[1])) return nil();
    if (words[i] == "PX") value.expires = wall(now) + 1000 * std::stoll(words[++i]);
  }
  store(words[1], std::move(value), by, now);
  return ok();
}

Reply Server::execute(const std::vector<std::string>& words, const std::string& by, Micros now) {
  ++commands[words[0]];
  ++commands_at[now / 100'000];
  expire(now);
  const std::string& name = words[0];
  if (name == "GET" || name == "MGET") {
    Reply all{Reply::Kind::array, 0, {}, {}};
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto found = values_.find(words[i]);
      all.elements.push_back(found == values_.end() ? nil() : bulk(found->second.bytes));
    }
    return name == "GET" ? all.elements[0] : all;
  }
  if (name == "SET") return set(words, by, now);
  if (name == "EVAL") {
    const std::string& lease = words[3];
    if (value(lease) != words[4]) return number(0);
    if (words[1] == kRenewScript) return set({"SET", lease, words[4], "PX", words[5]}, by, now), number(1);
    if (words[1] != kReleaseScript) throw std::logic_error("a script that this server does not know");
    set({"SET", lease, words[4], "PX", "1"}, by, now);
    end_period(lease, Period::End::released, now);
    return number(1);
  }
  // Only mutations of the protocol send the commands below.
  if (name != "DEL" && name != "PEXPIRE") throw std::logic_error("unknown command " + name);
  note(words[1], now);
  const auto found = values_.find(words[1]);
  if (found == values_.end()) return number(0);
  touched_others += found->second.bytes != by;
  if (name == "DEL")
    erase(words[1], found->second.bytes == by ? Period::End::released : Period::End::deleted, now);
  else
    found->second.expires = wall(now) + 1000 * std::stoll(words[2]);
  return number(1);
}

void Server::set_clock(Micros forward, Micros now) {
  expire(now);
  offset_ += forward;
  if (forward <= 0) return;
  // The leases that end here were ended by the clock's jump, which is a fault.
  for (auto value = values_.begin(); value != values_.end();) {
    const auto next = std::next(value);
    if (value->second.expires && *value->second.expires <= wall(now))
      erase(value->first, Period::End::fault, now);
    value = next;
  }
}

void Server::put_back(const std::string& key, const std::optional<Value>& before, Micros now) {
  if (!is_lease(key)) {
    before ? void(values_[key] = *before) : void(values_.erase(key));
    return;
  }
  const std::string held = open_.contains(key) ? periods_[open_[key]].token : "";
  if (before) {
    values_[key] = *before;
    if (held != before->bytes) end_period(key, Period::End::fault, now);
    if (!open_.contains(key)) begin_period(key, before->bytes, now);
  } else {
    values_.erase(key);
    end_period(key, Period::End::fault, now);
  }
}

void Server::fail_over(Micros lag, Micros now) {
  expire(now);
  for (; !undo_.empty() && undo_.back().at >= now - lag; undo_.pop_back())
    put_back(undo_.back().key, undo_.back().before, now);
  undo_.clear();
  expire(now);
}

void Server::flush(Micros now) {
  expire(now);
  while (!values_.empty()) erase(std::string(values_.begin()->first), Period::End::fault, now);
}

Period* Server::period_of(const std::string& lease, const std::string& token) {
  for (auto period = periods_.rbegin(); period != periods_.rend(); ++period)
    if (period->lease == lease && period->token == token) return &*period;
  return nullptr;
}

}  // namespace kiln::fleet::simulation
