// The nodes' work: their threads, their network, their compiles.
#include "tests/fleet/simulation.hpp"

#include <algorithm>
#include <utility>

#include "cache/fleet/redis/keys.hpp"
#include "tests/fleet/simulation_node.hpp"

namespace kiln::fleet::simulation {

Micros Simulation::latency() {
  return chance(slow_) ? between(kMilli, 400 * kMilli) : between(50, weather_.latency);
}
bool Simulation::reachable(const Node& node) const { return silent_since_ < 0 && !node.cut_off; }

/// The command as a broken protocol would send it.
std::vector<std::string> Simulation::mutated(std::vector<std::string> words) const {
  const bool renews = words[0] == "EVAL" && words[1] == kRenewScript,
             releases = words[0] == "EVAL" && words[1] == kReleaseScript;
  const bool acquires = words[0] == "SET" && words.size() == 6 && words[3] == "NX";
  switch (mutation_) {
    case Mutation::release_without_compare:
      return releases ? std::vector<std::string>{"DEL", words[3]} : words;
    case Mutation::renewal_by_pexpire:
      return renews ? std::vector<std::string>{"PEXPIRE", words[3], words[5]} : words;
    case Mutation::renewal_by_set_xx:
      return renews ? std::vector<std::string>{"SET", words[3], words[4], "XX", "PX", words[5]} : words;
    case Mutation::acquire_without_nx:
      return acquires ? std::vector<std::string>{"SET", words[1], words[2], "PX", words[5]} : words;
    case Mutation::acquire_without_expiry:
      return acquires ? std::vector<std::string>{"SET", words[1], words[2], "NX"} : words;
    case Mutation::no_release:
      return releases ? std::vector<std::string>{"GET", words[3]} : words;
    case Mutation::no_look_after_acquire:
      return words[0] == "GET" && words[1].find("}:e:") != std::string::npos
                 ? std::vector<std::string>{"GET", "nothing"}
                 : words;
    default:
      return words;
  }
}

void Simulation::wake(Node& node) {
  const std::uint64_t wake = ++node.wakes;
  at(now_, [this, &node, wake] {
    if (wake == node.wakes) step(node);
  });
}

/// The first look into the tier, which the calling thread does before it wants a lease.
void Simulation::first_look(Node& node, const Key& key) {
  send(node, {{{"MGET", entry_key(key)}, tag_of(key.specialisation)}},
       [this, &node, key](const std::vector<Answer>& answers) {
         if (answers[0] && answers[0].reply.elements[0].kind == Reply::Kind::bulk) {
           node.asks[key].decided = node.asks[key].served = now_;
           return;
         }
         node.leases->want(key, node.time(now_), Leases::Start::acquire);
         wake(node);
       });
}

/// The work of the tier's thread: it sends the requests that are due, one round at a time.
void Simulation::step(Node& node) {
  if (!node.alive || node.paused || node.busy) return;
  std::vector<LeaseRequest> requests = node.leases->due(node.time(now_));
  decided(node);
  if (requests.empty()) {
    if (const auto next = node.leases->next()) {
      const std::uint64_t wake = ++node.wakes;
      at(std::max(now_ + 1, node.virtual_time(*next)), [this, &node, wake] {
        if (wake == node.wakes) step(node);
      });
    }
    return;
  }
  for (const LeaseRequest& request : requests)
    if (!request.token.empty()) node.tokens[request.key] = request.token;
  node.busy = true;
  LeasePolicy policy = policy_;
  policy.may_write = !node.reads_only;
  const auto round = std::make_shared<LeaseRound>(
      std::move(requests), policy, [](const std::string&) { return 0u; }, 64, 1 << 24);
  send(node, round->commands(), [this, &node, round](std::vector<Answer> answers) {
    node.busy = false;
    std::vector<LeaseAnswer> read = round->read(std::move(answers));
    for (std::size_t i = 0; i < read.size(); ++i)
      node.leases->answered(round->requests()[i], std::move(read[i]), node.time(now_));
    decided(node);
    wake(node);
  });
}

/// Sends the commands of one pipeline. They reach the server one by one, and from a random command on not at
/// all. They may arrive long after the sender has given up and closed the connection.
void Simulation::send(Node& node, std::vector<Command> commands,
                      std::function<void(std::vector<Answer>)> then) {
  struct Exchange {
    std::vector<Answer> answers;
    std::function<void(std::vector<Answer>)> then;
    std::size_t done = 0;
    bool over = false;
    Micros answered_until = 0;  // answers share one stream, so none overtakes another
  };
  const auto exchange = std::make_shared<Exchange>();
  exchange->answers.resize(commands.size(), Answer{Fault::timeout, {}, {}});
  exchange->then = std::move(then);
  const auto end = [this, &node, exchange] {
    if (exchange->over) return;
    exchange->over = true;
    const bool failed = exchange->done < exchange->answers.size();
    node.failures = failed ? node.failures + 1 : 0;
    if (node.failures >= 3) node.open_until = now_ + between(24, 36) * kSecond, node.failures = 0;
    const auto deliver = [&node, exchange] {
      if (node.alive) exchange->then(std::move(exchange->answers));
    };
    node.paused ? node.when_resumed.push_back(deliver) : deliver();
  };
  if (node.open_until > now_) {
    for (Answer& answer : exchange->answers) answer.fault = Fault::breaker_open;
    exchange->done = exchange->answers.size();
    at(now_, end);
    return;
  }
  const std::size_t arrive =
      chance(loss_) ? static_cast<std::size_t>(between(0, static_cast<Micros>(commands.size()) - 1))
                    : commands.size();
  const bool answer_lost = chance(loss_);
  const bool straggler = slow_ > 0 && chance(0.02);  // the network stalls, and commands arrive long after
  Micros when = now_ + (straggler ? between(0, kLatest) : latency());
  const bool sent = reachable(node);
  for (std::size_t i = 0; i < arrive && sent; ++i) {
    when += between(0, 300);
    at(when, [this, &node, exchange, command = commands[i], i, answer_lost, end] {
      if (silent_since_ >= 0 || node.cut_off) return;
      const bool reads = command.words[0] == "GET" || command.words[0] == "MGET";
      if (!reads && now_ >= writes_paused_from_ && now_ < writes_paused_to_) return;
      const Key* key = nullptr;
      for (const Key& one : keys_)
        if (command.tag == tag_of(one.specialisation)) key = &one;
      Reply reply = server_.execute(mutated(command.words), node.tokens[*key], now_);
      if (lying_ > 0 && command.words[0] == "GET" && chance(lying_)) reply.text = "garbage";
      const bool last = i + 1 == exchange->answers.size();
      exchange->answered_until = std::max(exchange->answered_until, now_ + latency());
      at(exchange->answered_until,
         [this, &node, exchange, reply = std::move(reply), i, last, answer_lost, end] {
           if (exchange->over || node.cut_off || silent_since_ >= 0 || (answer_lost && (last || chance(0.5))))
             return;
           if (exchange->done != i) return;  // an earlier answer was lost, so the connection is broken
           exchange->answers[i] = {Fault::none, {}, reply};
           ++exchange->done;
           if (last) end();
         });
    });
  }
  at(now_ + kReadDeadline, end);
}

void Simulation::decided(Node& node) {
  for (const LeaseDecision& decision : node.leases->take_decisions()) {
    Ask& ask = node.asks[decision.key];
    ask.decided = now_;
    if (decision.why == LeaseDecision::Why::served) {
      ask.served = now_;
      continue;
    }
    const std::string lease = lease_key(decision.key), token = node.tokens[decision.key];
    ask.leased = decision.why == LeaseDecision::Why::leased;
    if (ask.leased) {
      Period* period = server_.period_of(lease, token);
      if (!period) violated("a lease that the server never gave");
      if (period) ++period->compiles;
      if (period && period->entry_was_there && lying_ == 0) violated("compiled what was there");
    }
    node.compiling[decision.key] = compiles_.size();
    compiles_.push_back({lease, token, node.index, now_, now_ + ask.own_compile, ask.leased});
    at(now_ + ask.own_compile, [this, &node, key = decision.key] { compiled(node, key); });
  }
}

void Simulation::compiled(Node& node, const Key& key) {
  if (!node.alive) return;
  if (node.paused) {
    compiles_[node.compiling[key]].ended = now_ + 1'000'000 * kSecond;  // until the node goes on
    node.when_resumed.push_back([this, &node, key] {
      compiles_[node.compiling[key]].ended = now_;
      compiled(node, key);
    });
    return;
  }
  node.asks[key].served = now_;
  const auto done = [this, &node, key] {
    node.leases->done(key, node.time(now_));
    wake(node);
  };
  if (node.reads_only) return done();
  const auto put = [this, &node, key](std::function<void()> then) {
    send(node, {{{"SET", entry_key(key), value_of(key)}, tag_of(key.specialisation)}},
         [then](const std::vector<Answer>&) { then(); });
  };
  if (mutation_ != Mutation::published_after_release) return put(done);
  done();
  at(now_ + 500 * kMilli, [put] { put([] {}); });
}

}  // namespace kiln::fleet::simulation
