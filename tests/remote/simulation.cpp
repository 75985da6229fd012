#include "tests/remote/simulation.hpp"

#include <algorithm>
#include <utility>

#include "remote/redis_keys.hpp"

namespace kiln::remote::simulation {
namespace {

constexpr Micros kMilli = 1000, kSecond = 1'000'000;
/// A read's deadline, and the longest that a command may still be on its way after its sender gave it up.
constexpr Micros kReadDeadline = 150 * kMilli, kLatest = 5 * kSecond;
constexpr Micros kLongest = 600 * kSecond;  // of a run: all are decided long before

Micros micros(Span span) { return std::chrono::duration_cast<std::chrono::microseconds>(span).count(); }

std::string value_of(const Key& key) { return "entry of " + key.hex(); }

}  // namespace

struct Simulation::Node {
  std::size_t index = 0;
  std::unique_ptr<Leases> leases;
  std::map<Key, Ask> asks;
  std::map<Key, std::size_t> compiling;  // its last compile, in compiles_
  std::map<Key, std::string> tokens;     // as last sent, for the witness
  bool alive = true, paused = false, cut_off = false, busy = false, reads_only = false;
  std::vector<std::function<void()>> when_resumed;
  Micros paused_in_all = 0;
  std::uint64_t wakes = 0;
  double rate = 1;  // its clock runs so fast
  Micros epoch = 0, stood_still = 0;
  std::vector<std::pair<Micros, Micros>> silences;  // the server out of its reach
  int failures = 0;                                 // the breaker
  Micros open_until = -1;

  Time time(Micros now) const {
    return Time(std::chrono::microseconds(
        epoch + static_cast<Micros>(static_cast<double>(now - stood_still) * rate)));
  }
  Micros virtual_time(Time when) const {
    const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
    return static_cast<Micros>(static_cast<double>(since - epoch) / rate) + stood_still + 1;
  }
};

Simulation::Simulation(std::uint64_t seed, Weather weather, Mutation mutation)
    : seed_(seed), weather_(weather), mutation_(mutation), random_(seed) {
  if (mutation_ == Mutation::no_renewal) policy_.renew_every = std::chrono::hours(1);
  if (mutation_ == Mutation::no_budget) policy_.budget = std::chrono::hours(1);
  if (mutation_ == Mutation::waits_for_a_silent_server) policy_.unanswered = 1 << 30;
  if (!weather_.calm) {
    loss_ = chance(0.5) ? 0.02 * static_cast<double>(between(0, 10)) : 0;
    slow_ = chance(0.5) ? 0.02 * static_cast<double>(between(0, 10)) : 0;
    lying_ = chance(0.1) ? 0.5 : 0;
  }
  const auto drawn_nodes = static_cast<std::size_t>(between(2, 16)),
             drawn_keys = static_cast<std::size_t>(between(1, 5));
  const std::size_t nodes = weather_.nodes ? weather_.nodes : drawn_nodes,
                    keys = weather_.keys ? weather_.keys : drawn_keys;
  for (std::size_t i = 0; i < keys; ++i) {
    Key key;
    key.specialisation.bytes[0] = static_cast<std::uint8_t>(i + 1);
    keys_.push_back(key);
    compile_time_[key] = compile_time();
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    auto node = std::make_unique<Node>();
    node->index = i;
    node->epoch = between(kSecond, 1'000'000 * kSecond);
    node->rate = 1 + 0.0001 * static_cast<double>(between(-100, 100));  // one per cent: a bad clock
    node->reads_only = chance(0.1) && weather_.nodes == 0;
    LeasePolicy policy = policy_;
    policy.may_write = !node->reads_only;
    const bool same = mutation_ == Mutation::one_token_for_all;
    node->leases = std::make_unique<Leases>(
        policy, same ? "all" : "node" + std::to_string(i), [this, same] { return same ? 7 : random_(); },
        [](const Key& key, const std::string& bytes) { return bytes == value_of(key); });
    nodes_.push_back(std::move(node));
  }
}
Simulation::~Simulation() = default;

void Simulation::at(Micros when, std::function<void()> what) {
  events_.push({when, sequence_++, std::move(what)});
}
Micros Simulation::between(Micros low, Micros high) {
  return low + static_cast<Micros>(random_() % static_cast<std::uint64_t>(high - low + 1));
}
bool Simulation::chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }

Micros Simulation::compile_time() {
  if (weather_.compile) return weather_.compile;
  const Micros kind = between(0, 9);
  if (kind < 5) return between(30 * kMilli, 500 * kMilli);
  if (kind < 8) return between(kSecond, 8 * kSecond);
  // Longer than a lease. In calm weather so that a takeover, too, is done within the budget.
  if (weather_.calm) return between(12 * kSecond, 14 * kSecond);
  return kind < 9 ? between(12 * kSecond, 40 * kSecond) : between(70 * kSecond, 100 * kSecond);
}
Micros Simulation::latency() {
  return chance(slow_) ? between(kMilli, 400 * kMilli) : between(50, weather_.latency);
}
bool Simulation::reachable(const Node& node) const { return silent_since_ < 0 && !node.cut_off; }

void Simulation::violated(std::string what) {
  violations_.push_back("seed " + std::to_string(seed_) + " at " +
                        std::to_string(static_cast<double>(now_) / kSecond) + " s: " + std::move(what));
}

/// What the protocol says, as its broken sister would say it.
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

/// Times of crashes, pauses, partitions and what happens to the server.
void Simulation::plan_weather() {
  // Everybody at once, or one after the other; some begin when most have what they want.
  const Micros drawn = chance(0.5) ? 50 * kMilli : 20 * kSecond,
               spread = weather_.nodes ? weather_.spread : drawn;
  for (const auto& owned : nodes_) {
    Node& node = *owned;
    const Micros together = between(1, spread);
    for (const Key& key : keys_) {
      if (!chance(0.9) && weather_.nodes == 0) continue;
      const Micros when = weather_.nodes ? together : between(1, spread);
      at(when, [this, &node, key] {
        if (!node.alive) return;
        Ask ask;
        ask.asked = now_;
        ask.own_compile =
            compile_time_[key] * between(80, 130) / 100;  // a kernel takes as long everywhere, nearly
        node.asks[key] = ask;
        if (weather_.nodes) return first_look(node, key);
        node.leases->want(key, node.time(now_));
        wake(node);
      });
    }
    if (chance(0.15) && weather_.nodes == 0) at(between(1, 30 * kSecond), [this, &node] { crash(node); });
    if (weather_.calm) continue;
    if (chance(0.15)) {
      const Micros from = between(1, 40 * kSecond), length = between(100 * kMilli, 60 * kSecond);
      const bool clock_stops = chance(0.3);
      at(from, [this, &node, length, clock_stops] { pause(node, now_ + length, clock_stops); });
    }
    if (chance(0.2)) {
      const Micros from = between(1, 40 * kSecond),
                   length = chance(0.3) ? 60 * kSecond : between(kMilli, 30 * kSecond);
      at(from, [&node] { node.cut_off = true; });
      node.silences.push_back({from, from + length});
      at(from + length, [&node] { node.cut_off = false; });
    }
  }
  if (weather_.calm) return;
  for (Micros i = between(0, 2); i > 0; --i)
    at(between(1, 60 * kSecond), [this] {
      ++failovers_;
      chance(0.3) ? server_.flush(now_) : server_.fail_over(between(1, 2 * kSecond), now_);
    });
  for (Micros i = between(0, 1); i > 0; --i) {
    const Micros from = between(1, 40 * kSecond), length = between(100 * kMilli, 40 * kSecond);
    const bool restarts_empty = chance(0.5);
    at(from, [this] { silent_since_ = now_; });
    for (const auto& node : nodes_) node->silences.push_back({from, from + length});
    at(from + length, [this, restarts_empty] {
      silent_since_ = -1;
      if (restarts_empty) ++failovers_, server_.flush(now_);
    });
  }
  for (Micros i = between(0, 1); i > 0; --i) {
    const Micros forward = chance(0.5) ? between(-30 * kSecond, -kMilli) : between(kMilli, 3600 * kSecond);
    at(between(1, 40 * kSecond), [this, forward] {
      server_.set_clock(forward, now_);
      clock_back_ += std::max<Micros>(0, -forward);
    });
  }
}

void Simulation::crash(Node& node) {
  if (!node.alive) return;
  node.alive = false;
  ++crashes_;
  for (const auto& [key, index] : node.compiling) {
    Compile& compile = compiles_[index];
    if (compile.ended <= now_) continue;
    compile.ended = now_;
    compile.crashed = true;
    if (compile.leased) check_dead_lease(compile.lease, compile.token, now_);
  }
}

/// Nobody renews it: the lease of the dead ends within its time.
void Simulation::check_dead_lease(const std::string& lease, const std::string& token, Micros crashed) {
  const Micros slack = micros(policy_.lease) + kLatest + clock_back_ + kSecond;
  at(crashed + slack, [this, lease, token, slack] {
    server_.expire(now_);
    // A clock that is set back while this waits makes it last by that much longer.
    if (server_.value(lease) == token && slack >= micros(policy_.lease) + kLatest + clock_back_ + kSecond)
      violated("the lease of a dead node lives on");
  });
}

void Simulation::pause(Node& node, Micros until, bool clock_stops) {
  if (!node.alive || node.paused) return;
  node.paused = true;
  const Micros from = now_;
  at(until, [this, &node, from, clock_stops] {
    node.paused = false;
    node.paused_in_all += now_ - from;
    if (clock_stops) node.stood_still += now_ - from;
    for (auto& what : std::exchange(node.when_resumed, {})) what();
    wake(node);
  });
}

void Simulation::wake(Node& node) {
  const std::uint64_t wake = ++node.wakes;
  at(now_, [this, &node, wake] {
    if (wake == node.wakes) step(node);
  });
}

/// As the tier does it: the asking thread's own, before the lease's.
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

/// What the tier's thread does: one round of what is due at a time.
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

/// The commands of one pipeline reach the server one by one or not at all from some on, and may do so long
/// after their sender has given up and closed the connection.
void Simulation::send(Node& node, std::vector<Command> commands,
                      std::function<void(std::vector<Answer>)> then) {
  struct Exchange {
    std::vector<Answer> answers;
    std::function<void(std::vector<Answer>)> then;
    std::size_t done = 0;
    bool over = false;
    Micros answered_until = 0;  // one stream: an answer never overtakes
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
  const bool straggler = slow_ > 0 && chance(0.02);  // a stalled network: long after
  Micros when = now_ + (straggler ? between(0, kLatest) : latency());
  const bool sent = reachable(node);
  for (std::size_t i = 0; i < arrive && sent; ++i) {
    when += between(0, 300);
    at(when, [this, &node, exchange, command = commands[i], i, answer_lost, end] {
      if (silent_since_ >= 0 || node.cut_off) return;
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
           if (exchange->done != i) return;  // in order, or the connection is broken
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
    compiles_[node.compiling[key]].ended = now_ + 1'000'000 * kSecond;  // until it goes on
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

void Simulation::check(Report& report) {
  if (server_.touched_others > 0)
    violated(std::to_string(server_.touched_others) + " commands changed another's lease");
  for (const Period& period : server_.periods()) {
    report.most_compiles_per_period =
        std::max(report.most_compiles_per_period, static_cast<std::uint64_t>(period.compiles));
    if (period.compiles > 1) violated("two compiles in one lease period");
    const bool alive = std::none_of(compiles_.begin(), compiles_.end(), [&](const Compile& compile) {
      return compile.token == period.token && compile.lease == period.lease && !nodes_[compile.node]->alive;
    });
    if (weather_.calm && alive && period.compiles > 0 && period.end == Period::End::expired)
      violated("a lease was not given back");
    report.lost_to_failover += period.end == Period::End::fault && period.compiles > 0;
    report.lost_to_expiry += period.end == Period::End::expired && period.compiles > 0;
    if (period.end == Period::End::deleted || period.end == Period::End::overwritten)
      violated("a lease was ended by another");
  }
  report.periods += server_.periods().size();
  for (const auto& [name, times] : server_.commands) report.commands[name] += times;
  for (const auto& [when, times] : server_.commands_at)
    report.most_commands_per_100_ms = std::max(report.most_commands_per_100_ms, times);
  // Two leased compiles of one key at once: only after the first one's lease was lost to a fault.
  for (const Compile& first : compiles_) {
    if (!first.leased) continue;
    for (const Compile& second : compiles_) {
      if (!second.leased || second.lease != first.lease || &first == &second || second.began < first.began ||
          second.began >= first.ended)
        continue;
      ++report.overlaps;
      if (weather_.calm) violated("two leased compiles of one key at once, and nothing had happened");
      // Mostly the first one's; or the second one's own, before its node had heard that it was given.
      bool lost = false;
      for (const Period& period : server_.periods()) {
        const bool by_fault = period.end == Period::End::expired || period.end == Period::End::fault;
        if (!by_fault || period.lease != first.lease) continue;
        lost |= period.token == first.token || (period.token == second.token && period.ended <= second.began);
      }
      if (!lost) violated("two leased compiles of one key at once, and no lease was lost");
    }
  }
  for (const auto& owned : nodes_) {
    const Node& node = *owned;
    if (!node.alive) continue;
    for (const auto& [key, ask] : node.asks) {
      ++report.asks;
      report.hits += ask.served >= 0 && !node.compiling.contains(key);
      if (ask.served < 0) {
        violated("an ask was never served");
        continue;
      }
      ++report.served;
      const Micros patience = micros(LeasePolicy().budget) * 102 / 100 + 4 * kReadDeadline;
      if (ask.decided - ask.asked > patience + node.paused_in_all) violated("waited past the budget");
      // Three looks without an answer, each at most 30 % after the former.
      for (const auto& [from, to] : node.silences) {
        const Micros until = ask.asked + (from - ask.asked) * 22 / 10 + 2 * kSecond;
        if (ask.asked < from && node.paused_in_all == 0 && to > until && ask.decided > until)
          violated("a silent server was waited for");
      }
      report.added_s.push_back(std::max(
          0.0, static_cast<double>(ask.served - ask.asked - ask.own_compile - node.paused_in_all) / kSecond));
    }
  }
  if (weather_.calm) {
    for (const Key& key : keys_) {
      std::size_t made = 0, crashed = 0, excused = 0;
      for (const Compile& compile : compiles_) {
        if (compile.lease != lease_key(key)) continue;
        ++made, crashed += compile.crashed;
        excused += nodes_[compile.node]->reads_only;
      }
      // Beyond the first: one for each that died, and when two died in a row the convoy is left by all.
      if (crashed < 2 && made > 1 + crashed + excused)
        violated(std::to_string(made) + " compiles of one key, " + std::to_string(crashed) + " crashed");
    }
  }
}

void Simulation::run(Report& report) {
  plan_weather();
  while (!events_.empty() && events_.top().when <= kLongest) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.when;
    event.what();
  }
  check(report);
  ++report.runs;
  report.keys += keys_.size();
  report.crashes += crashes_;
  report.failovers += failovers_;
  report.compiles += compiles_.size();
  for (const Compile& compile : compiles_) report.leased += compile.leased;
  report.without_lease = report.compiles - report.leased;
  for (const auto& node : nodes_) {
    const LeaseCounts& from = node->leases->counts();
    LeaseCounts& to = report.counts;
    for (const auto member :
         {&LeaseCounts::served, &LeaseCounts::leased, &LeaseCounts::read_only, &LeaseCounts::unanswered,
          &LeaseCounts::refused, &LeaseCounts::budget, &LeaseCounts::convoy, &LeaseCounts::waited,
          &LeaseCounts::takeovers, &LeaseCounts::lost, &LeaseCounts::regained})
      to.*member += from.*member;
  }
  report.violations.insert(report.violations.end(), violations_.begin(), violations_.end());
}

}  // namespace kiln::remote::simulation
