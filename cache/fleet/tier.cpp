#include "cache/fleet/tier_parts.hpp"

#include <set>

#include "base/log.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "cache/fleet/toolchain_row.hpp"

namespace kiln::fleet {

namespace {

/// Of one value, with what the protocol puts around it.
constexpr std::uint64_t kEntryReply = kMostEnvelope + 64;
/// Entries in one round trip of commands that fetch many: 64 MiB at most, since a server that has made more
/// than its client-output-buffer-limit (docs/fleet/redis.conf: 128 MB) ends the connection.
constexpr std::size_t kFetchedAtOnce = 4;
/// Rows of other toolchains whose entries are fetched in vain before it is a miss.
constexpr int kMostTried = 4;

Command rows_of(const Digest& specialisation) {
  return {{"HGETALL", rows_key(specialisation)}, tag_of(specialisation), 2 * kMostRows * (kMostRow + 128)};
}

}  // namespace

Tier::Tier(TierOptions options, std::shared_ptr<Counts> counts)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(counts))) {}

Tier::~Tier() {
  impl_->stop();
  impl_->leave();
}

bool Tier::writes() const noexcept { return impl_->options.fleet && impl_->options.signer; }
bool Tier::can_write() const noexcept { return impl_->options.signer != nullptr; }
const Url& Tier::url() const noexcept { return impl_->options.url; }
Client& Tier::client() noexcept { return impl_->client; }
std::span<const trust::PublicKey> Tier::trusted() const noexcept { return impl_->options.trusted; }
const trust::SigningKey* Tier::signer() const noexcept { return impl_->options.signer.get(); }
void Tier::stop() noexcept { impl_->stop(); }

void count_miss(Counts& counts, Fault fault) noexcept {
  switch (fault) {
    case Fault::none:
    case Fault::off:
      ++counts.remote_miss_absent;
      break;
    case Fault::timeout:
      ++counts.remote_miss_timeout;
      break;
    case Fault::unresolved:
    case Fault::connect:
    case Fault::closed:
      ++counts.remote_miss_unreachable;
      break;
    case Fault::tls:
    case Fault::auth:
    case Fault::refused:
      ++counts.remote_miss_refused;
      break;
    case Fault::breaker_open:
      ++counts.remote_miss_breaker;
      break;
    case Fault::protocol:
    case Fault::too_large:
    case Fault::no_memory:
      ++counts.remote_miss_protocol;
      break;
  }
}

void count_rejected(Counts& counts, Rejection reason) noexcept {
  switch (reason) {
    case Rejection::other_schema:
      ++counts.remote_rejected_schema;
      break;
    case Rejection::other_key:
    case Rejection::other_key_text:
      ++counts.remote_rejected_key;
      break;
    case Rejection::unsigned_:
    case Rejection::unknown_key:
    case Rejection::bad_signature:
      ++counts.remote_rejected_signature;
      break;
    default:
      ++counts.remote_rejected_damaged;
  }
}

Tier::Fetched Tier::Impl::read(Answer answer, const Asked& asked,
                               std::span<const trust::PublicKey> believed) {
  Fetched out;
  if (is_of_wrong_type(answer.fault, answer.detail)) {  // a SET replaces it
    out.rejection = Rejection::malformed;
    return out;
  }
  out.fault = answer.fault, out.detail = std::move(answer.detail);
  if (!answer || answer.reply.kind == fleet::Reply::Kind::nil) return out;
  if (answer.reply.kind != fleet::Reply::Kind::bulk) {
    out.rejection = Rejection::malformed;
    return out;
  }
  auto opened = open_envelope(answer.reply.text, asked, believed);
  if (auto* entry = std::get_if<Entry>(&opened))
    out.entry = std::move(*entry);
  else
    out.rejection = std::get<Rejection>(opened);
  return out;
}

void Tier::Impl::warn(Fault fault, const char* does, const std::string& detail) const {
  if (fault != Fault::refused && fault != Fault::auth && fault != Fault::tls) return;
  base::warn_once(std::string("remote") + does + name_of(fault),
                  "the fleet's tier at " + options.url.safe() + does + detail);
}

std::vector<Tier::Fetched> Tier::fetch(const std::vector<Asked>& asked, base::Deadline deadline,
                                       std::span<const trust::PublicKey> believed) noexcept {
  std::vector<Fetched> out;
  try {
    out.reserve(asked.size());
    for (std::size_t from = 0; from < asked.size(); from += kFetchedAtOnce) {
      const std::size_t to = std::min(from + kFetchedAtOnce, asked.size());
      std::vector<Command> commands;
      for (std::size_t i = from; i < to; ++i)
        commands.push_back(
            {{"GET", entry_key(asked[i].key)}, tag_of(asked[i].key.specialisation), kEntryReply});
      std::vector<Answer> answers = impl_->client.call(commands, deadline);
      answers.resize(commands.size(), Answer{Fault::closed, {}, {}});
      for (std::size_t i = from; i < to; ++i)
        out.push_back(impl_->read(std::move(answers[i - from]), asked[i], believed));
    }
  } catch (...) {
    out.resize(asked.size(), Fetched{std::nullopt, Fault::no_memory, std::nullopt, "out of memory"});
  }
  return out;
}

std::vector<bool> Tier::are_listed(const std::vector<Key>& keys, base::Deadline deadline,
                                   std::span<const trust::PublicKey> believed) noexcept {
  std::vector<bool> out;
  try {
    out.resize(keys.size(), true);
    std::vector<Command> commands;
    for (const Key& key : keys) commands.push_back(rows_of(key.specialisation));
    const std::vector<Answer> answers = impl_->client.call(commands, deadline);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i]) continue;
      const auto& elements = answers[i].reply.elements;
      out[i] = false;
      for (std::size_t at = 0; at + 1 < elements.size() && !out[i]; at += 2)
        out[i] = elements[at].text == keys[i].toolchain.hex() &&
                 std::holds_alternative<ToolchainRow>(open_row(elements[at + 1].text, keys[i], believed));
    }
  } catch (const std::exception&) {  // no memory: nothing is known
  }
  return out;
}

/// The first look is the asking thread's own, so that a hit costs one round trip and no thread.
Tier::Reply Tier::ask(const Ask& ask) noexcept try {
  Counts& counts = *impl_->counts;
  const Asked asked{ask.key, ask.key_text, Asked::Text::whole};
  Fetched first = std::move(fetch({asked}, base::Deadline::never()).front());
  if (first.entry && ask.acceptable && !ask.acceptable(*first.entry)) {
    first.entry.reset();
    first.rejection = Rejection::bad_payload;
  }
  Reply out;
  if (first.entry) {
    out.entry = std::move(first.entry);
    return out;
  }
  if (first.rejection) count_rejected(counts, *first.rejection);
  impl_->warn(first.fault, " gives nothing to this node: ", first.detail);
  out.absent = first.fault == Fault::none;
  Fault fault = first.fault;
  // What was rejected is replaced by whoever compiles it next.
  // A server that has just failed is not asked for more: that would be paid for twice.
  if (writes() && ask.may_compile && fault == Fault::none) out = impl_->lease(ask, first, fault);
  if (!out.entry && !first.rejection) count_miss(counts, fault);
  return out;
} catch (...) {
  ++impl_->counts->remote_miss_protocol;
  return {};
}

std::optional<Entry> Tier::find(const Find& find) noexcept try {
  Counts& counts = *impl_->counts;
  Answer answer = impl_->client.call(rows_of(find.specialisation), base::Deadline::never());
  if (!answer) {
    impl_->warn(answer.fault, " gives nothing to this node: ", answer.detail);
    count_miss(counts, answer.fault);
    return std::nullopt;
  }
  std::vector<std::pair<std::string, std::string>> fields;
  auto& elements = answer.reply.elements;
  for (std::size_t i = 0; i + 1 < elements.size(); i += 2)
    fields.emplace_back(std::move(elements[i].text), std::move(elements[i + 1].text));
  RejectionCounts rejected;
  int tried = 0;
  for (const ToolchainRow& row : open_rows(fields, find.specialisation, impl_->options.trusted, rejected)) {
    if (!row.serves_others || (find.wanted && !find.wanted(row.key))) continue;
    if (tried++ == kMostTried) break;
    Fetched fetched =
        std::move(fetch({{row.key, find.text, Asked::Text::prefix}}, base::Deadline::never()).front());
    if (fetched.rejection) count_rejected(counts, *fetched.rejection);
    if (!fetched.entry) continue;
    if (!find.acceptable || find.acceptable(*fetched.entry)) return std::move(fetched.entry);
    count_rejected(counts, Rejection::bad_payload);
  }
  for (std::size_t i = 0; i < kRejections; ++i)
    for (std::uint64_t n = rejected.of(static_cast<Rejection>(i)); n > 0; --n)
      count_rejected(counts, static_cast<Rejection>(i));
  ++counts.remote_miss_absent;
  return std::nullopt;
} catch (...) {
  ++impl_->counts->remote_miss_protocol;
  return std::nullopt;
}

}  // namespace kiln::fleet
