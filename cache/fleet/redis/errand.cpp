#include "cache/fleet/redis/errand.hpp"

#include <algorithm>
#include <cstdint>

#include "cache/fleet/redis/command_bytes.hpp"

namespace kiln::fleet {
namespace {

constexpr std::uint64_t kAskingLimit = 1024;

/// The errands for one server.
struct Round {
  std::vector<Errand*> errands;
  Server::Visit visit;
};

void fail(Answer& answer, Fault fault, const std::string& detail) {
  answer.fault = fault;
  answer.detail = detail;
}

/// Makes a server's text fit for logs.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

void fill(Answer& answer, Reply reply) {
  if (reply.kind != Reply::Kind::error) {
    answer.reply = std::move(reply);
    return;
  }
  const bool locked_out = reply.text.starts_with("NOAUTH") || reply.text.starts_with("WRONGPASS");
  fail(answer, locked_out ? Fault::auth : Fault::refused, printable(std::move(reply.text)));
}

/// Makes a batch of the commands that can be sent. The other errands are answered and removed.
Batch batch_of(std::vector<Errand*>& errands) {
  Batch batch;
  batch.patient =
      std::all_of(errands.begin(), errands.end(), [](const Errand* e) { return e->command->patient; });
  std::erase_if(errands, [&](Errand* errand) {
    const std::size_t before = batch.bytes.size();
    if (errand->asking) append_command(batch.bytes, {"ASKING"});
    if (!append_command(batch.bytes, errand->command->words)) {
      batch.bytes.resize(before);
      fail(*errand->answer, Fault::too_large, "the command has more than 64 MiB, or no words");
      return true;
    }
    if (errand->asking) batch.limits.push_back(kAskingLimit);
    batch.limits.push_back(errand->command->reply_limit);
    return false;
  });
  return batch;
}

void take_answers(Round& round) {
  Connection* const connection = round.visit.connection();
  std::size_t next = 0;
  Fault fault = round.visit.fault;
  std::string detail = round.visit.detail;
  if (connection) {
    fault = connection->failure().fault;
    detail = connection->failure().detail;
  }
  for (Errand* errand : round.errands) {
    if (errand->asking) ++next;  // ASKING has an answer of its own
    if (connection && next < connection->traffic().replies().size()) {
      fill(*errand->answer, std::move(connection->traffic().replies()[next++]));
      continue;
    }
    fail(*errand->answer, fault, detail);
    if (fault == Fault::too_large) {
      fault = Fault::closed;
      detail = "an earlier answer on this connection was too large";
    }
  }
}

}  // namespace

void run(std::vector<Errand> errands, base::Deadline deadline) {
  if (deadline.passed()) {
    for (const Errand& errand : errands)
      fail(*errand.answer, Fault::timeout, "the caller's deadline had passed");
    return;
  }
  // All threads visit the servers in one order, so that a thread that waits for a connection holds none
  // of a later server.
  std::stable_sort(errands.begin(), errands.end(),
                   [](const Errand& a, const Errand& b) { return std::less<>()(a.server, b.server); });
  for (const Errand& errand : errands)
    if (&errand == &errands.front() || errand.server != (&errand - 1)->server) errand.server->expect_visit();

  std::vector<Round> rounds;
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < errands.size();) {
    Server& server = *errands[i].server;
    std::vector<Errand*> mine;
    for (; i < errands.size() && errands[i].server == &server; ++i) mine.push_back(&errands[i]);
    Batch batch = batch_of(mine);
    if (mine.empty()) continue;
    rounds.push_back({std::move(mine), server.enter(deadline)});
    batches.push_back(std::move(batch));
  }
  std::vector<Connection*> connections;
  const auto now = base::Clock::now();  // no server's time begins while another's name is resolved
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    Connection* const connection = rounds[i].visit.connection();
    if (!connection) continue;
    connection->begin(std::move(batches[i]), now);
    connections.push_back(connection);
  }
  drive(connections, deadline);
  for (Round& round : rounds) {
    take_answers(round);
    std::vector<const Answer*> answers;
    for (const Errand* errand : round.errands) answers.push_back(errand->answer);
    Server& server = *round.errands.front()->server;
    server.leave(std::move(round.visit), answers);
  }
}

}  // namespace kiln::fleet
