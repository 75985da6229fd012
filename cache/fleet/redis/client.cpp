#include "cache/fleet/redis/client.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "cache/fleet/redis/cluster.hpp"
#include "cache/fleet/redis/errand.hpp"
#include "cache/fleet/redis/server.hpp"

namespace kiln::fleet {

struct Client::Impl {
  std::shared_ptr<const Common> common;
  std::vector<std::unique_ptr<Server>> servers;  // of the URL, in its order
  std::unique_ptr<Cluster> cluster;

  /// Rendezvous hashing: a server that leaves moves only the tags that it had.
  std::size_t server_of(std::string_view tag) const noexcept {
    if (tag.empty() || servers.size() < 2) return 0;
    std::size_t best = 0;
    std::uint64_t highest = 0;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      const std::uint64_t both[] = {base::hash64(servers[i]->endpoint().name), base::hash64(tag)};
      const std::uint64_t weight = base::hash64({reinterpret_cast<const char*>(both), sizeof both});
      if (i == 0 || weight > highest) best = i, highest = weight;
    }
    return best;
  }
};

Client::Client(const ClientOptions& options) : impl_(std::make_unique<Impl>()) {
  const Url& url = options.url;
  auto common = std::make_shared<Common>();
  common->login = {url.user, url.password, url.authenticate, url.database};
  // A longer timeout is cut to this one, so that no sum of times overflows.
  constexpr base::Clock::duration kLongest = std::chrono::hours(1);
  common->timeouts = {std::min(options.timeouts.connect, kLongest), std::min(options.timeouts.read, kLongest),
                      std::max<std::uint64_t>(1, options.timeouts.bytes_per_second)};
  if (url.timeout.count() > 0) common->timeouts.connect = common->timeouts.read = url.timeout;
  common->breaker = options.breaker;
  common->connections = std::max(1, options.connections);
  common->idle = options.idle;
  common->now = options.now ? options.now : base::Clock::now;
  common->resolver = std::make_unique<Resolver>(options.lookup);
  if (url.tls) common->tls = std::make_unique<TlsFilesInUse>(TlsFiles{url.ca, url.cert, url.key});
  impl_->common = common;
  for (const Endpoint& endpoint : url.servers)
    impl_->servers.push_back(std::make_unique<Server>(endpoint, impl_->common));
  if (url.cluster) {
    std::vector<Server*> seeds;
    for (const auto& server : impl_->servers) seeds.push_back(server.get());
    impl_->cluster = std::make_unique<Cluster>(std::move(seeds), impl_->common);
  }
}

Client::~Client() = default;

std::vector<Answer> Client::call(const std::vector<Command>& commands, base::Deadline deadline) noexcept {
  std::vector<Answer> answers;
  try {
    answers.resize(commands.size());
    if (impl_->servers.empty()) {
      for (Answer& answer : answers) answer.fault = Fault::off;
      return answers;
    }
    if (impl_->cluster) {
      impl_->cluster->call(commands, answers, deadline);
      return answers;
    }
    std::vector<Errand> errands;
    for (std::size_t i = 0; i < commands.size(); ++i)
      errands.push_back({&commands[i], &answers[i], impl_->servers[impl_->server_of(commands[i].tag)].get()});
    run(std::move(errands), deadline);
  } catch (const std::exception&) {
    for (Answer& answer : answers) answer = {Fault::no_memory, {}, {}};
  }
  return answers;
}

Answer Client::call(const Command& command, base::Deadline deadline) noexcept {
  std::vector<Answer> answers;
  try {
    answers = call(std::vector<Command>{command}, deadline);
  } catch (const std::exception&) {
  }
  return answers.empty() ? Answer{Fault::no_memory, {}, {}} : std::move(answers.front());
}

std::uint32_t Client::location(std::string_view tag) const noexcept {
  return impl_->cluster ? hash_slot_of(tag) : static_cast<std::uint32_t>(impl_->server_of(tag));
}

std::vector<ServerStatus> Client::status() const {
  std::vector<ServerStatus> out;
  for (const auto& server : impl_->servers) out.push_back(server->status());
  if (impl_->cluster)
    for (const Server* node : impl_->cluster->nodes()) out.push_back(node->status());
  return out;
}

}  // namespace kiln::fleet
