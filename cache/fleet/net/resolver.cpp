#include "cache/fleet/net/resolver.hpp"

#include <netdb.h>
#include <pthread.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/no_signals.hpp"

namespace kiln::fleet {
namespace {

constexpr auto kKept = std::chrono::seconds(30);
constexpr auto kKeptNone = std::chrono::seconds(5);  // "no such name" is forgotten sooner
constexpr std::size_t kMostAddresses = 16;           // they share the time for connecting
constexpr auto kDoubtful = std::chrono::seconds(1);  // an answer younger than this is not doubted

std::vector<Address> ask_system(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  std::vector<Address> out;
  for (const addrinfo* at = list; at && out.size() < kMostAddresses; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    out.push_back(address);
  }
  ::freeaddrinfo(list);
  return out;
}

struct CachedName {
  std::vector<Address> addresses;
  bool asking = false, answered = false, doubted = false;
  Resolver::Time asked_at{}, answered_at{};

  bool wants_asking(Resolver::Time now) const {
    if (asking) return false;
    if (!answered) return true;
    const auto age = now - answered_at;
    return age >= (addresses.empty() ? kKeptNone : kKept) || (doubted && age >= kDoubtful);
  }
};

}  // namespace

struct Resolver::State {
  std::mutex mutex;  // guards the names
  std::condition_variable answer;
  std::map<std::pair<std::string, std::uint16_t>, CachedName> names;
};

Resolver::Shared::Shared() : state(std::make_shared<State>()) {}

Resolver::Resolver(Lookup lookup) : lookup_(lookup ? std::move(lookup) : ask_system) {}

/// REQUIRES: the state's mutex is held.
void Resolver::start(const std::shared_ptr<State>& state, const Lookup& lookup, const std::string& host,
                     std::uint16_t port) {
  CachedName& entry = state->names[{host, port}];
  entry.asking = true;
  entry.asked_at = base::Clock::now();
  const auto answer = [state, host, port](std::vector<Address> addresses) {
    const std::lock_guard lock(state->mutex);
    CachedName& asked = state->names[{host, port}];
    // A DNS server that went away must not take a known address from us.
    if (!addresses.empty() || !asked.answered) asked.addresses = std::move(addresses);
    asked.asking = asked.doubted = false;
    asked.answered = true;
    asked.answered_at = base::Clock::now();
    state->answer.notify_all();
  };
  try {
    const base::NoSignals inherited_by_the_thread;
    std::thread([answer, lookup, host, port] {
      ::pthread_setname_np(::pthread_self(), "kiln-resolve");
      std::vector<Address> addresses;
      try {
        addresses = lookup(host, port);
      } catch (...) {
      }
      try {
        answer(std::move(addresses));
      } catch (...) {  // a mutex that fails: nobody is told
      }
    }).detach();
  } catch (const std::exception&) {  // no thread could be started: as if there were no answer
    entry.asking = false;
    entry.answered = true;
    entry.answered_at = base::Clock::now();
  }
}

std::vector<Address> Resolver::addresses(const std::string& host, std::uint16_t port,
                                         base::Clock::duration patience, base::Deadline deadline) {
  if (const auto address = Address::numeric(host, port)) return {*address};
  const std::shared_ptr<State> state = shared_.get().state;
  std::unique_lock lock(state->mutex);
  CachedName& entry = state->names[{host, port}];  // a map's nodes do not move
  if (entry.wants_asking(base::Clock::now())) start(state, lookup_, host, port);
  if (entry.addresses.empty())
    state->answer.wait_until(lock, std::min(entry.asked_at + patience, deadline.at()),
                             [&] { return !entry.asking; });
  return entry.addresses;
}

void Resolver::ask(const std::string& host, std::uint16_t port) {
  if (Address::numeric(host, port)) return;
  const std::shared_ptr<State> state = shared_.get().state;
  const std::lock_guard lock(state->mutex);
  if (state->names[{host, port}].wants_asking(base::Clock::now())) start(state, lookup_, host, port);
}

void Resolver::doubt(const std::string& host, std::uint16_t port) {
  const std::shared_ptr<State> state = shared_.get().state;
  const std::lock_guard lock(state->mutex);
  const auto at = state->names.find({host, port});
  if (at != state->names.end()) at->second.doubted = true;
}

}  // namespace kiln::fleet
