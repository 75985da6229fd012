// Compares eviction with true LRU. 16 processes share a store that holds only a part of the
// kernels that they request. They draw from a Zipf distribution, put what they miss, and take
// turns, so that one order of all accesses exists.
// The same order then goes through an LRU and a FIFO cache. Both hold
// as many entries as the store held at most.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <random>
#include <unordered_map>
#include <vector>

#include "base/file.hpp"
#include "cache/store/store.hpp"

namespace {

using namespace kiln;

constexpr int kProcesses = 16;
constexpr std::uint32_t kKeys = 1500, kAccesses = 20'000, kWarmUp = 4'000;
constexpr std::size_t kImageBytes = 50'000;
constexpr std::uint64_t kCap = 24 << 20;

struct Shared {
  pthread_mutex_t turn;
  std::uint32_t next, hits, most_entries;
  std::uint32_t trace[kAccesses];
};

Key key_of(std::uint32_t number) {
  Key key;
  std::memcpy(key.specialisation.bytes.data(), &number, sizeof number);
  return key;
}

void access(cache::Store& store, Shared& shared, std::uint32_t index) {
  const std::uint32_t number = shared.trace[index];
  const std::string text = std::to_string(number);
  if (store.get(key_of(number), text, base::Deadline::never()).record) {
    shared.hits += index >= kWarmUp;
    return;
  }
  const auto put = store.put({key_of(number), "", text, std::string(kImageBytes, 'x')});
  if (put.put != cache::Put::stored) std::fprintf(stderr, "put: %s\n", put.detail.c_str());
  if (index % 16 == 0)
    shared.most_entries = std::max(shared.most_entries, static_cast<std::uint32_t>(store.stats().entries));
}

/// A process that is `long_lived` makes every access through one open store. Otherwise each access
/// opens the store again, as short commands do.
void ask(const std::string& directory, Shared& shared, bool long_lived) {
  const auto open = [&] { return cache::Store::open({.directory = directory, .cap_bytes = kCap}); };
  auto store = open();
  for (;;) {
    ::pthread_mutex_lock(&shared.turn);
    const std::uint32_t index = shared.next++;
    if (index < kAccesses) access(*store, shared, index);
    ::pthread_mutex_unlock(&shared.turn);
    if (index >= kAccesses) return;
    if (!long_lived) store = open();
  }
}

/// Hits after the warm-up. `moves`: a cache that moves an entry to the front when it is used (LRU);
/// otherwise the entry stays in place (FIFO).
std::uint32_t simulated(const Shared& shared, bool moves) {
  std::list<std::uint32_t> order;
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> there;
  std::uint32_t hits = 0;
  for (std::uint32_t index = 0; index < kAccesses; ++index) {
    const std::uint32_t number = shared.trace[index];
    if (const auto found = there.find(number); found != there.end()) {
      hits += index >= kWarmUp;
      if (moves) order.splice(order.begin(), order, found->second);
      continue;
    }
    if (there.size() == shared.most_entries) {
      there.erase(order.back());
      order.pop_back();
    }
    order.push_front(number);
    there[number] = order.begin();
  }
  return hits;
}

void measure(double exponent, bool long_lived) {
  auto& shared = *static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutex_init(&shared.turn, &attributes);
  std::vector<double> weights(kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) weights[i] = 1 / std::pow(i + 1, exponent);
  std::mt19937 random(7);
  std::discrete_distribution<std::uint32_t> zipf(weights.begin(), weights.end());
  for (std::uint32_t& number : shared.trace) number = zipf(random);

  const base::TempDir directory("kiln-recency-");
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      ask(directory.path(), shared, long_lived);
      ::_exit(0);
    }
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const auto share = [](std::uint32_t hits) { return 100.0 * hits / (kAccesses - kWarmUp); };
  std::printf("zipf %.2f  %-10s  %5u entries  kiln %5.1f %%  lru %5.1f %%  fifo %5.1f %%\n", exponent,
              long_lived ? "long-lived" : "fresh", shared.most_entries, share(shared.hits),
              share(simulated(shared, true)), share(simulated(shared, false)));
  std::fflush(stdout);
  ::munmap(&shared, sizeof shared);
}

}  // namespace

int main() {
  ::setenv("TMPDIR", "/dev/shm", 0);
  for (const double exponent : {0.8, 1.0, 1.2})
    for (const bool long_lived : {true, false}) measure(exponent, long_lived);
}
