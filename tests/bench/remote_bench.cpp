// The fleet's tier: a remote hit beside a local one and a compile, a new node that fills itself, bytes on
// the wire. Prints ratios inside one process.
// Usage: `remote_bench [KERNELS]`. Needs redis-server, and NVRTC unless KERNELS is 0.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "cache/fleet/tier.hpp"
#include "cache/store/store.hpp"
#include "cache/trust/secret_key.hpp"
#include "runtime/service/preparation.hpp"
#include "runtime/service/service.hpp"
#include "tests/fleet/redis_server.hpp"
#include "tests/support/places.hpp"

namespace {

using namespace kiln;
using Clock = base::Clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Spread {
  double p50, p99;
};
Spread spread(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms[ms.size() * 99 / 100]};
}

/// As compressible as a cubin, which zstd -3 reduces to about 0.4: runs of zeros and
/// words of a small alphabet between noise.
std::string image_of(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string out;
  while (out.size() < size) {
    const std::uint64_t word = random();
    for (int i = 0; i < 3; ++i) out += static_cast<char>(word >> (8 * i));
    out.append(5, static_cast<char>(word >> 60));
  }
  out.resize(size);
  return out;
}

struct Fixture {
  base::TempDir directory{"kiln-remote-bench"};
  testing::RedisServer server;
  std::shared_ptr<const trust::SigningKey> key;

  Fixture() {
    const trust::SecretKey made = trust::SecretKey::generate();
    base::write_file(directory.path() + "/fleet.key", made.file().bytes());
    ::chmod((directory.path() + "/fleet.key").c_str(), 0600);
    key = std::make_shared<const trust::SigningKey>(made.public_key().id, made.bytes());
  }
  std::unique_ptr<fleet::Tier> tier(const std::string& url) const {
    fleet::TierOptions options;
    options.url = fleet::Url::parse(url);
    options.fleet = true, options.signer = key, options.who = "bench";
    return std::make_unique<fleet::Tier>(std::move(options), std::make_shared<fleet::Counts>());
  }
};

fleet::ServerStatus status_of(fleet::Tier& tier) { return tier.backend().health().front(); }

void latency(const Fixture& fixture, std::size_t size, const char* name) {
  constexpr int kEntries = 32, kRounds = 20;
  const auto store = cache::Store::open({.directory = fixture.directory.path() + "/store-" + name});
  std::vector<cache::Record> records;
  for (unsigned i = 0; i < kEntries; ++i) {
    Key key;
    key.specialisation.bytes[0] = static_cast<std::uint8_t>(i), key.specialisation.bytes[1] = size > 100'000;
    records.push_back({key, "facts", "key text of entry " + std::to_string(i), image_of(size, i)});
    store->put(records.back());
  }
  std::vector<double> local;
  for (int round = 0; round < kRounds; ++round)
    for (const cache::Record& record : records) {
      const auto start = Clock::now();
      if (!store->get(record.key, record.key_text, base::Deadline::never()).record) std::abort();
      local.push_back(ms_since(start));
    }
  const Spread here = spread(local);
  std::printf("%-6s local  (verified)             p50 %7.3f ms  p99 %7.3f ms\n", name, here.p50, here.p99);
  for (const auto& [where, url] :
       {std::pair{"Unix socket", fixture.server.unix_url()}, {"loopback", fixture.server.url()}}) {
    const auto tier = fixture.tier(url);
    for (const cache::Record& record : records)
      tier->publish({record, "sm_90a", "bench"}, {}, nullptr, fleet::Tier::Full::wait);
    tier->flush(base::Deadline::never());
    const fleet::ServerStatus before = status_of(*tier);
    std::vector<double> remote;
    for (int round = 0; round < kRounds; ++round)
      for (const cache::Record& record : records) {
        const auto start = Clock::now();
        const auto reply =
            tier->ask({.key = record.key, .key_text = record.key_text, .acceptable = {}, .on_wait = {}});
        if (!reply.entry || reply.entry->image != record.image) std::abort();
        remote.push_back(ms_since(start));
      }
    const fleet::ServerStatus after = status_of(*tier);
    const Spread there = spread(remote);
    const double hits = kRounds * kEntries;
    std::printf(
        "%-6s remote (%-11s, verified) p50 %7.3f ms  p99 %7.3f ms   %.1f x local; on the wire %.0f bytes in, "
        "%.0f out a hit (%.2f of the image)\n",
        name, where, there.p50, there.p99, there.p50 / here.p50,
        static_cast<double>(after.bytes_in - before.bytes_in) / hits,
        static_cast<double>(after.bytes_out - before.bytes_out) / hits,
        static_cast<double>(after.bytes_in - before.bytes_in) / hits / static_cast<double>(size));
  }
}

constexpr const char* kManifest =
    "format = 1\n[template]\nname = \"bench\"\nsource = \"bench.cu\"\ninstantiate = \"bench<{N}>\"\n"
    "[param.N]\nkind = \"int\"\nrange = [1, 100000]\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n";
constexpr const char* kSource =
    "template <int N> __global__ void bench(float* x, int n) {\n"
    "  float a[8] = {};\n"
    "  for (int i = 0; i < n; ++i)\n"
    "    for (int j = 0; j < 8; ++j) a[j] += x[i * N + j] * N;\n"
    "  for (int j = 0; j < 8; ++j) x[j] = a[j];\n}\n";

/// Code without loops, so that N decides the image's size.
constexpr const char* kLongManifest =
    "format = 1\n[template]\nname = \"straight\"\nsource = \"straight.cu\"\ninstantiate = "
    "\"straight<{N}>\"\n[param.N]\nkind = \"int\"\nrange = [1, 100000]\n[launch]\ngrid = [\"1\"]\n"
    "block = [\"64\"]\n";
constexpr const char* kLongSource =
    "template <int K> __device__ __noinline__ void part(float* x) {\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 400; ++i) x[i * 64 + threadIdx.x] = x[i * 64 + threadIdx.x] * K + i;\n}\n"
    "template <int N> struct Parts {\n"
    "  static __device__ void run(float* x) { Parts<N - 1>::run(x), part<N>(x); }\n};\n"
    "template <> struct Parts<0> { static __device__ void run(float*) {} };\n"
    "template <int N> __global__ void straight(float* x) { Parts<N>::run(x); }\n";

void compiled(const Fixture& fixture, int n) {
  Options options = Options::hermetic();
  options.cache_dir = fixture.directory.path() + "/straight";
  options.worker = std::string(kiln::places::kBuildDirectory) + "/kiln-worker";
  if (const char* home = std::getenv("KILN_CUDA_HOME")) options.cuda_home = home;
  runtime::Service service(options);
  service.add({kLongManifest, kLongSource, {}});
  const std::vector<Value> values = {n};
  const auto start = Clock::now();
  const auto got = service.open("straight", KILN_DEVICE_NONE, "sm_90a").compile(values, {});
  std::printf("compiled here: an image of %zu bytes in %.0f ms\n", got.image->bytes.size(), ms_since(start));
}

/// A service that prepares the images of the whole plan.
void fill(const Fixture& fixture, const std::string& cache, const std::string& url, int kernels,
          const char* what) {
  Options options = Options::hermetic();
  options.cache_dir = fixture.directory.path() + '/' + cache;
  options.worker = std::string(kiln::places::kBuildDirectory) + "/kiln-worker";
  if (const char* home = std::getenv("KILN_CUDA_HOME")) options.cuda_home = home;
  if (!url.empty())
    options.remote = url, options.remote_mode = "fleet",
    options.remote_sign = fixture.directory.path() + "/fleet.key";
  runtime::Service service(options);
  service.add({kManifest, kSource, {}});
  runtime::PrepareRequest request;
  request.plan =
      "[[prewarm]]\ntemplate = \"bench\"\nN = { from = 1, to = " + std::to_string(kernels) + ", step = 1 }\n";
  request.file = "plan", request.image_only = true, request.device = KILN_DEVICE_NONE,
  request.arch = "sm_90a";
  const auto start = Clock::now();
  const auto preparation = runtime::Preparation::begin(service.scopes(), service.own_scope(), request);
  preparation->wait(base::Deadline::never());
  const double ready = ms_since(start);
  service.core().path().flush();
  const double stored = ms_since(start);
  kiln_stats stats{};
  read(service.core().state().counters, stats);
  service.core().path().fleet().read(stats);
  std::printf(
      "%-34s %7.0f ms, %6.0f kernels/s (stored too: %7.0f ms); compiles %llu, remote hits %llu, disk hits "
      "%llu; "
      "%.0f bytes in, %.0f out a kernel, round trip p50 %.2f ms p99 %.2f ms\n",
      what, ready, kernels / ready * 1000, stored, static_cast<unsigned long long>(stats.compiles),
      static_cast<unsigned long long>(stats.remote_hits), static_cast<unsigned long long>(stats.disk_hits),
      static_cast<double>(stats.remote_bytes_in) / kernels,
      static_cast<double>(stats.remote_bytes_out) / kernels, stats.remote_p50_ms, stats.remote_p99_ms);
}

}  // namespace

int main(int argc, char** argv) {
  if (!kiln::testing::RedisServer::installed()) {
    std::puts("no redis-server on this machine");
    return 77;
  }
  const Fixture fixture;
  latency(fixture, 50'000, "50 KB");
  latency(fixture, 1'000'000, "1 MB");
  const int kernels = argc > 1 ? std::atoi(argv[1]) : 1000;
  if (kernels == 0) return 0;
  for (const int n : {2, 40}) compiled(fixture, n);
  if (kernels == 0) return 0;
  const std::string url = fixture.server.url();
  fill(fixture, "a", url, kernels, "compiled and written to the tier");
  fill(fixture, "b", url, kernels, "a fresh node, from the tier");
  fill(fixture, "b", "", kernels, "the same node again, from its disk");
  fill(fixture, "c", "", kernels, "without a tier, compiled");
}
