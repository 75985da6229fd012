#include "cache/fleet/redis/upkeep/upkeep.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/redis/upkeep/server_upkeep.hpp"
#include "cache/fleet/redis/values.hpp"

namespace kiln::fleet {
namespace {

/// Bytes of answers.
constexpr std::uint64_t kProbeReply = 64, kForgetReply = 1024, kMissedReply = std::uint64_t{64} << 20;
/// Ids in one XDEL.
constexpr std::size_t kForgottenAtOnce = 1000;
/// Hash tags that together lie on every node of a cluster of a usual size.
constexpr int kProbedTags = 64;

Endpoint endpoint_of(const std::string& name, std::size_t colon) {
  Endpoint out;
  out.name = name;
  out.host = name.substr(0, colon);
  if (out.host.starts_with('[')) out.host = out.host.substr(1, out.host.size() - 2);
  out.port = static_cast<std::uint16_t>(std::stoi(name.substr(colon + 1)));
  return out;
}

MissedRow missed_row(Reply& entry) {
  MissedRow out;
  out.id = std::move(entry.elements[0].text);
  std::vector<Reply>& fields = entry.elements[1].elements;
  for (const Reply& field : fields) out.bytes += field.text.size();
  if (fields.size() == 2 && fields[0].text == "row") out.text = std::move(fields[1].text);
  return out;
}

}  // namespace

/// A cluster names a node when another node is asked for one of its slots.
std::vector<Endpoint> RedisUpkeep::nodes_of_cluster() {
  for (int tag = 0; tag < kProbedTags; ++tag)
    ask_patiently(
        client_,
        {{"EXISTS", "kiln:1:{" + std::to_string(tag) + "}:probe"}, std::to_string(tag), kProbeReply});
  std::vector<Endpoint> out;
  for (const ServerStatus& server : client_.status())
    if (const std::size_t colon = server.name.rfind(':'); colon != std::string::npos)
      out.push_back(endpoint_of(server.name, colon));
  return out;
}

std::vector<std::unique_ptr<ServerUpkeep>> RedisUpkeep::servers() {
  std::vector<std::unique_ptr<ServerUpkeep>> out;
  const Url& url = options_.url;
  for (Endpoint& endpoint : url.cluster ? nodes_of_cluster() : std::vector<Endpoint>(url.servers)) {
    ClientOptions options = options_;
    options.url.cluster = false;
    options.url.servers = {std::move(endpoint)};
    out.push_back(std::make_unique<RedisServerUpkeep>(options));
  }
  return out;
}

Outcome RedisUpkeep::reach(const Digest& specialisation) {
  return outcome_of(ask_patiently(client_, {{"PING"}, tag_of(specialisation), kProbeReply}));
}

MissedPage RedisUpkeep::missed(const std::string& after, std::size_t most) {
  const std::string stream(kMissingKey);
  Answer answer = ask_patiently(
      client_, {{"XRANGE", stream, after.empty() ? "-" : '(' + after, "+", "COUNT", std::to_string(most)},
                stream,
                kMissedReply});
  MissedPage out;
  out.fault = answer.fault;
  out.detail = std::move(answer.detail);
  for (Reply& entry : answer.reply.elements) {
    if (entry.elements.size() != 2 || entry.elements[0].text.empty()) {
      static_cast<Outcome&>(out) = {Fault::protocol, "XRANGE: an entry of the answer has no id and fields"};
      break;
    }
    out.rows.push_back(missed_row(entry));
  }
  return out;
}

std::string RedisUpkeep::missed_removal() const {
  return "'XTRIM " + std::string(kMissingKey) + " MAXLEN 0'";
}

Outcome RedisUpkeep::forget(std::span<const std::string> ids) {
  const std::string stream(kMissingKey);
  Outcome out;
  for (std::size_t from = 0; from < ids.size(); from += kForgottenAtOnce) {
    const auto some = ids.subspan(from, std::min(kForgottenAtOnce, ids.size() - from));
    std::vector<std::string> words{"XDEL", stream};
    words.insert(words.end(), some.begin(), some.end());
    Answer answer = ask_patiently(client_, {std::move(words), stream, kForgetReply});
    if (!answer && out) out = outcome_of(std::move(answer));
  }
  return out;
}

}  // namespace kiln::fleet
