#include "cache/fleet/redis/lease_commands.hpp"

#include <utility>

#include "cache/fleet/redis/keys.hpp"

namespace kiln::fleet {
namespace {

/// Bytes of an answer: a status, an integer, or a text of a token's length.
constexpr std::uint64_t kLeaseReply = 1024;

std::string milliseconds_of(Span span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

/// The command that decides the request; its answer says whether the lease is ours.
std::vector<std::string> words_of(const LeaseRequest& request, const LeasePolicy& policy) {
  const std::string lease = lease_key(request.key);
  switch (request.kind) {
    case LeaseRequest::Kind::acquire:
    case LeaseRequest::Kind::regain:
      return {"SET", lease, request.token, "NX", "PX", milliseconds_of(policy.lease)};
    case LeaseRequest::Kind::resume:
    case LeaseRequest::Kind::renew:
      return {"EVAL", std::string(kRenewScript), "1", lease, request.token, milliseconds_of(policy.lease)};
    default:
      return {"EVAL", std::string(kReleaseScript), "1", lease, request.token};
  }
}

bool also_looks(LeaseRequest::Kind kind) {
  return kind == LeaseRequest::Kind::acquire || kind == LeaseRequest::Kind::resume;
}

LeaseAnswer::State state_of(const Answer& answer) {
  return answer                           ? LeaseAnswer::State::answered
         : answer.fault == Fault::refused ? LeaseAnswer::State::refused
                                          : LeaseAnswer::State::unanswered;
}

bool is_granted(const Reply& reply) {
  return reply.kind == Reply::Kind::status ||  // SET: OK, or nil when somebody has it
         (reply.kind == Reply::Kind::integer && reply.integer == 1);
}

}  // namespace

LeaseRound::LeaseRound(std::vector<LeaseRequest> requests, const LeasePolicy& policy, const Locate& locate,
                       std::size_t most_looks, std::uint64_t reply_limit)
    : requests_(std::move(requests)), values_of_look_(policy.may_write ? 2 : 1), where_(requests_.size()) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const LeaseRequest& request = requests_[i];
    const std::string tag = tag_of(request.key.specialisation);
    if (request.kind == LeaseRequest::Kind::look) {
      add_look(i, locate(tag), most_looks, reply_limit);
      continue;
    }
    where_[i].command = commands_.size();
    commands_.push_back({words_of(request, policy), tag, kLeaseReply});
    // The GET comes after the claim, never before: an entry that was published before the lease became free
    // is there by now.
    if (also_looks(request.kind)) commands_.push_back({{"GET", entry_key(request.key)}, tag, reply_limit});
  }
}

void LeaseRound::add_look(std::size_t request, std::uint32_t location, std::size_t most,
                          std::uint64_t limit) {
  const Key& key = requests_[request].key;
  const auto open = open_.find(location);
  if (open == open_.end() || commands_[open->second].words.size() > values_of_look_ * most) {
    open_[location] = commands_.size();
    commands_.push_back({{"MGET"}, tag_of(key.specialisation), limit});
  }
  Command& command = commands_[open_[location]];
  where_[request] = {open_[location], command.words.size() - 1};
  command.words.push_back(entry_key(key));
  if (values_of_look_ == 2) command.words.push_back(lease_key(key));
}

std::vector<LeaseAnswer> LeaseRound::read(std::vector<Answer> answers) const {
  answers.resize(commands_.size(), Answer{Fault::closed, {}, {}});
  std::vector<LeaseAnswer> out(requests_.size());
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Where where = where_[i];
    Answer& first = answers[where.command];
    LeaseAnswer& answer = out[i];
    answer.state = state_of(first);
    if (answer.state != LeaseAnswer::State::answered) continue;
    const auto take_entry = [&](Reply& reply) {
      if (reply.kind == Reply::Kind::bulk) answer.entry = std::move(reply.text);
    };
    if (requests_[i].kind == LeaseRequest::Kind::look) {
      if (first.reply.kind != Reply::Kind::array ||
          first.reply.elements.size() < where.element + values_of_look_) {
        answer.state = LeaseAnswer::State::unanswered;  // not an MGET's answer
        continue;
      }
      take_entry(first.reply.elements[where.element]);
      if (values_of_look_ == 1) continue;
      Reply& holder = first.reply.elements[where.element + 1];
      if (holder.kind == Reply::Kind::bulk) answer.holder = std::move(holder.text);
      continue;
    }
    answer.granted = is_granted(first.reply);
    if (also_looks(requests_[i].kind)) {
      Answer& second = answers[where.command + 1];
      if (second)
        take_entry(second.reply);
      else if (is_failure_of_server(second.fault))
        answer.state = LeaseAnswer::State::unanswered;  // ours or not, the next look tells
    }
  }
  return out;
}

}  // namespace kiln::fleet
