#include "cache/fleet/redis/cluster.hpp"

#include <algorithm>
#include <cstdint>

#include "cache/fleet/redis/errand.hpp"

namespace kiln::fleet {
namespace {
constexpr int kRedirections = 3;
constexpr int kTeachers = 3;                           // asked for the slots before a call is given up
constexpr std::size_t kMostNodes = 1024;               // a cluster has at most 1,000
constexpr std::uint64_t kHashSlotsLimit = 4 << 20;     // bytes of an answer to CLUSTER SLOTS
constexpr auto kLearnAgain = std::chrono::seconds(1);  // at the earliest
}  // namespace

Server* Cluster::node(State& state, const Node& node, const Server& asked) {
  Endpoint endpoint;
  endpoint.host = node.host.empty() ? asked.endpoint().host : node.host;
  endpoint.port = node.port;
  const bool six = endpoint.host.find(':') != std::string::npos;
  endpoint.name = (six ? '[' + endpoint.host + ']' : endpoint.host) + ':' + std::to_string(endpoint.port);
  for (Server* seed : seeds_)
    if (seed->endpoint().name == endpoint.name) return seed;
  const auto at = state.nodes.find(endpoint.name);
  if (at != state.nodes.end()) return at->second.get();
  if (endpoint.host.empty() || state.nodes.size() >= kMostNodes) return nullptr;
  const std::string name = endpoint.name;
  return (state.nodes[name] = std::make_unique<Server>(std::move(endpoint), common_)).get();
}

bool Cluster::learn_from(State& state, Server& server, Answer& answer, base::Deadline deadline) {
  const Command command{.words = {"CLUSTER", "SLOTS"}, .tag = {}, .reply_limit = kHashSlotsLimit};
  run({{&command, &answer, &server}}, deadline);
  const std::vector<HashSlotRange> ranges = hash_slot_ranges(answer.reply);
  if (ranges.empty()) {
    if (answer) answer = {Fault::refused, "CLUSTER SLOTS names no owner of a hash slot", {}};
    return false;
  }
  const std::lock_guard lock(state.mutex);
  state.owners.fill(nullptr);
  for (const HashSlotRange& range : ranges) {
    Server* const owner = node(state, range.owner, server);
    std::fill(state.owners.begin() + range.first, state.owners.begin() + range.last + 1, owner);
  }
  state.known = true;
  state.stale = false;
  return true;
}

/// Learns which node has which slot. One call learns a stale map again, and other calls go on with the old
/// map. While there is no map, each call learns. `answers` get the fault when no server can tell.
void Cluster::learn(State& state, std::vector<Answer>& answers, base::Deadline deadline) {
  std::vector<Server*> teachers = seeds_;
  {
    const std::lock_guard lock(state.mutex);
    const auto now = base::Clock::now();
    if (state.known && (!state.stale || state.learning || now - state.learnt_at < kLearnAgain)) return;
    state.learning = true;
    state.learnt_at = now;
    for (const auto& [name, server] : state.nodes) teachers.push_back(server.get());
  }
  struct Learnt {
    State& state;
    ~Learnt() {
      const std::lock_guard lock(state.mutex);
      state.learning = false;
    }
  } const learnt{state};
  deadline =
      earlier(deadline, base::Deadline::after(2 * (common_->timeouts.connect + common_->timeouts.read)));
  Answer answer;
  int asked = 0;
  for (Server* teacher : teachers) {
    answer = {};
    if (learn_from(state, *teacher, answer, deadline)) return;
    if (answer.fault != Fault::breaker_open && ++asked == kTeachers) break;
  }
  for (Answer& each : answers) each = answer;
}

void Cluster::call(const std::vector<Command>& commands, std::vector<Answer>& answers,
                   base::Deadline deadline) {
  State& state = state_.get();
  learn(state, answers, deadline);
  std::vector<Errand> errands;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.known) return;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      Server* const owner = commands[i].tag.empty() ? nullptr : state.owners[hash_slot_of(commands[i].tag)];
      errands.push_back({&commands[i], &answers[i], owner ? owner : seeds_.front()});
    }
  }
  for (int redirections = 0; !errands.empty(); ++redirections) {
    for (const Errand& errand : errands) *errand.answer = {};
    run(errands, deadline);
    std::vector<Errand> again;
    const std::lock_guard lock(state.mutex);
    for (Errand& errand : errands) {
      if (is_failure_of_server(errand.answer->fault)) state.stale = true;  // another node may have taken over
      if (errand.answer->fault != Fault::refused) continue;
      const auto to = redirection(errand.answer->detail);
      if (!to) continue;
      Server* const server = node(state, to->to, *errand.server);
      if (!server) continue;
      if (!to->ask) state.owners[to->hash_slot] = server, state.stale = true;
      if (redirections < kRedirections) again.push_back({errand.command, errand.answer, server, to->ask});
    }
    errands = std::move(again);
  }
}

std::vector<Server*> Cluster::nodes() const {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  std::vector<Server*> out;
  for (const auto& [name, server] : state.nodes) out.push_back(server.get());
  return out;
}

}  // namespace kiln::fleet
