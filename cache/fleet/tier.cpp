#include "cache/fleet/tier.hpp"

#include <algorithm>

#include "cache/fleet/lease_thread.hpp"
#include "cache/fleet/push_queue.hpp"
#include "cache/fleet/toolchain_row.hpp"

namespace kiln::fleet {

namespace {

/// Entries of other toolchains that are fetched for nothing before `find` misses.
constexpr int kMostTried = 4;

Tier::Fetched read(Value value, const Asked& asked, std::span<const trust::PublicKey> believed) {
  Tier::Fetched out;
  out.fault = value.fault;
  out.detail = std::move(value.detail);
  if (value.kind == Value::Kind::other) out.rejection = Rejection::malformed;
  if (value.kind != Value::Kind::bytes) return out;
  auto opened = open_envelope(value.bytes, asked, believed);
  if (auto* entry = std::get_if<PublishedRecord>(&opened))
    out.entry = std::move(*entry);
  else
    out.rejection = std::get<Rejection>(opened);
  return out;
}

std::shared_ptr<const TierContext> on_backend_of_url(TierOptions options, std::shared_ptr<Counts> counts) {
  auto backend = options.url.open({options.timeouts, options.breaker});
  return std::make_shared<const TierContext>(std::move(options), std::move(backend), std::move(counts));
}

}  // namespace

struct Tier::Parts {
  explicit Parts(std::shared_ptr<const TierContext> shared)
      : context(std::move(shared)),
        leases(std::make_shared<LeaseThread>(context)),
        queue(std::make_shared<PushQueue>(context)) {}

  const std::shared_ptr<const TierContext> context;
  const std::shared_ptr<LeaseThread> leases;
  const std::shared_ptr<PushQueue> queue;
};

Tier::Tier(TierOptions options, std::shared_ptr<Backend> backend, std::shared_ptr<Counts> counts)
    : parts_(std::make_unique<Parts>(
          std::make_shared<const TierContext>(std::move(options), std::move(backend), std::move(counts)))) {}

Tier::Tier(TierOptions options, std::shared_ptr<Counts> counts)
    : parts_(std::make_unique<Parts>(on_backend_of_url(std::move(options), std::move(counts)))) {}

Tier::~Tier() {
  parts_->leases->stop();
  const auto deadline = base::Deadline::after(parts_->context->options.patience);
  parts_->queue->leave(deadline);
  parts_->leases->leave(deadline);
}

bool Tier::writes() const noexcept { return parts_->context->options.fleet && can_write(); }
bool Tier::can_write() const noexcept { return parts_->context->options.signer != nullptr; }
const TierUrl& Tier::url() const noexcept { return parts_->context->options.url; }
Backend& Tier::backend() noexcept { return *parts_->context->backend; }
std::span<const trust::PublicKey> Tier::trusted() const noexcept { return parts_->context->options.trusted; }
const trust::SigningKey* Tier::signer() const noexcept { return parts_->context->options.signer.get(); }
void Tier::stop() noexcept { parts_->leases->stop(); }

bool Tier::publish(PublishedRecord entry, About about, std::shared_ptr<HeldLease> lease, Full full) noexcept {
  return parts_->queue->publish(std::move(entry), std::move(about), std::move(lease), full);
}
void Tier::report_missing(std::string row) noexcept { parts_->queue->report_missing(std::move(row)); }
bool Tier::flush(base::Deadline deadline) noexcept { return parts_->queue->flush(deadline); }
Tier::Totals Tier::totals() { return parts_->queue->totals(); }

std::vector<Tier::Fetched> Tier::fetch(const std::vector<Asked>& asked, base::Deadline deadline,
                                       std::span<const trust::PublicKey> believed) noexcept {
  std::vector<Fetched> out;
  try {
    out.reserve(asked.size());
    std::vector<Key> keys;
    for (const Asked& one : asked) keys.push_back(one.key);
    backend().get(keys, deadline, [&](std::size_t index, Value value) {
      out.push_back(read(std::move(value), asked[index], believed));
    });
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
    std::vector<Digest> specialisations;
    for (const Key& key : keys) specialisations.push_back(key.specialisation);
    const std::vector<Rows> listed = backend().list(specialisations, deadline);
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (!listed[i]) continue;
      const std::string wanted = keys[i].toolchain.hex();
      out[i] = std::any_of(listed[i].rows.begin(), listed[i].rows.end(), [&](const auto& row) {
        return row.first == wanted &&
               std::holds_alternative<ToolchainRow>(open_row(row.second, keys[i], believed));
      });
    }
  } catch (const std::exception&) {  // no memory: nothing is known
  }
  return out;
}

/// The asking thread itself makes the first look, so that a hit costs one round trip and no other thread.
Tier::Reply Tier::ask(const Ask& ask) noexcept try {
  const TierContext& context = *parts_->context;
  Counts& counts = *context.counts;
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
  context.warn(first.fault, " cannot be read by this node: ", first.detail);
  out.absent = first.fault == Fault::none;
  Fault fault = first.fault;
  // A rejected entry is replaced by the node that compiles the key next. A server that has just failed is not
  // asked for a lease: its timeouts would be paid for twice.
  if (writes() && ask.may_compile && fault == Fault::none)
    out = parts_->leases->lease(ask, first.rejection.has_value(), fault);
  if (!out.entry && !first.rejection) count_miss(counts, fault);
  return out;
} catch (...) {
  ++parts_->context->counts->remote_miss_protocol;
  return {};
}

std::optional<PublishedRecord> Tier::find(const Find& find) noexcept try {
  const TierContext& context = *parts_->context;
  Counts& counts = *context.counts;
  const auto listed = backend().list({&find.specialisation, 1}, base::Deadline::never());
  if (listed.empty() || !listed.front()) {
    const Outcome out = listed.empty() ? Outcome{Fault::no_memory} : Outcome(listed.front());
    context.warn(out.fault, " cannot be read by this node: ", out.detail);
    count_miss(counts, out.fault);
    return std::nullopt;
  }
  RejectionCounts rejected;
  int tried = 0;
  for (const ToolchainRow& row : open_rows(listed.front().rows, find.specialisation, trusted(), rejected)) {
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
  ++parts_->context->counts->remote_miss_protocol;
  return std::nullopt;
}

}  // namespace kiln::fleet
