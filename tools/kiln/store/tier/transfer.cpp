#include "tools/kiln/store/tier/transfer.hpp"

#include <algorithm>
#include <tuple>

#include "base/arch.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "compile/key/key.hpp"
#include "compile/key/tuned_choice.hpp"
#include "runtime/blob/blob_space.hpp"
#include "runtime/state/open_tier.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/cli/progress.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

constexpr auto kFlushPatience = std::chrono::seconds(60);

/// Waits until the server's name is resolved, once for all keys, and fetches again.
fleet::Tier::Fetched patiently(fleet::Tier& tier, const fleet::Asked& asked,
                               std::span<const trust::PublicKey> believed) {
  tier.backend().upkeep().reach(asked.key.specialisation);
  return std::move(tier.fetch({asked}, base::Deadline::never(), believed).front());
}

std::vector<fleet::Tier::Fetched> fetch(fleet::Tier& tier, const std::vector<fleet::Asked>& asked,
                                        std::span<const trust::PublicKey> believed) {
  auto out = tier.fetch(asked, base::Deadline::never(), believed);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].fault == fleet::Fault::unresolved) out[i] = patiently(tier, asked[i], believed);
  return out;
}

/// Returns nothing for facts of another version.
std::optional<runtime::TierLabels> labels_of(const cache::Record& record) {
  try {
    if (compile::is_choice(record.facts)) {
      const compile::TunedChoice choice = compile::decode_choice(record.facts);
      return runtime::TierLabels{choice.arch, "tuned", {choice.created_s, false, ""}};
    }
    if (cache::is_blob(record.facts))
      return runtime::TierLabels{"", "blobs of " + cache::decode_blob(record.facts).space, {}};
    return runtime::labels_of(compile::decode_facts(record.facts));
  } catch (const base::Malformed&) {
    return std::nullopt;
  }
}

/// False for an entry that is there without its row: the server may evict one of the two only.
std::vector<bool> are_listed(fleet::Tier& tier, const std::vector<cache::Record>& batch,
                             const std::vector<fleet::Tier::Fetched>& fetched,
                             std::span<const trust::PublicKey> believed) {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (fetched[i].entry) keys.push_back(batch[i].key);
  std::vector<bool> of_keys = tier.are_listed(keys, base::Deadline::never(), believed);
  of_keys.resize(keys.size(), true);
  std::vector<bool> out(batch.size(), true);
  for (std::size_t i = 0, key = 0; i < batch.size(); ++i)
    if (fetched[i].entry) out[i] = of_keys[key++];
  return out;
}

/// True when the tier's entry has what this record has. The key of a blob determines neither its bytes nor how they are
/// cut, and an entry finds only parts of its own cut.
bool has_same_content(const cache::Record& record, const cache::Record& there) try {
  if (!cache::is_blob(record.facts)) return true;
  const cache::BlobFacts here = cache::decode_blob(record.facts), other = cache::decode_blob(there.facts);
  return std::tie(here.content, here.parts, here.part_bytes) ==
         std::tie(other.content, other.parts, other.part_bytes);
} catch (const base::Malformed&) {
  return false;
}

/// Writes records to the tier in batches.
class Push {
 public:
  Push(fleet::Tier& tier, const RecordOf& record, Pushed& out) : tier_(tier), record_(record), out_(out) {}

  void add(const Key& key) {
    auto one = record_(key);
    if (!one) return count_miss(one.miss);
    if (!cache::is_blob(one->facts)) return add(*std::move(one));
    try {
      add(cache::decode_blob(one->facts), *std::move(one));
    } catch (const base::Malformed&) {
      ++out_.unreadable;
    }
  }
  void send();
  /// How many records were handed over to the tier's queue.
  std::uint64_t handed_over() const noexcept { return handed_over_; }

 private:
  static constexpr std::size_t kBatchBytes = std::size_t{64} << 20;

  void add(cache::Record&& record) {
    batch_bytes_ += record.size();
    batch_.push_back(std::move(record));
    if (batch_.size() >= kKeysAtOnce || batch_bytes_ >= kBatchBytes) send();
  }
  /// A large blob has parts of another size in the tier, so parts of the store go with their blob.
  void add(const cache::BlobFacts& facts, cache::Record&& record) {
    if (facts.part != 0) {
      --out_.entries;
      return;
    }
    if (facts.parts == 0 && facts.size <= runtime::kTierPart) return add(std::move(record));
    const auto content = whole_blob(facts, record, record_);
    if (!content) return count_miss(content.miss);
    add(facts, content->view);
  }
  /// Cuts a blob as the tier has it. Its head follows only when the tier has all parts: a head without them would be a
  /// miss for every node, and would replace a blob that is whole.
  void add(const cache::BlobFacts& facts, std::string_view content) {
    settle();
    const std::uint64_t failed = out_.failed, handed_over = handed_over_, puts = tier_.totals().puts;
    std::optional<cache::Record> head;
    --out_.entries;
    cache::each_record(facts, content, runtime::kTierPart, [&](cache::Record&& record) {
      ++out_.entries;
      if (record.key == cache::blob_key(facts).key)
        head = std::move(record);
      else if (!out_.fault.down)
        add(std::move(record));
    });
    settle();
    if (out_.fault.down) return;
    if (out_.failed == failed && tier_.totals().puts - puts == handed_over_ - handed_over)
      add(*std::move(head));
    else
      ++out_.failed;
  }
  /// Sends what is waiting, and waits until it is written or has failed.
  void settle() {
    send();
    tier_.flush(base::Deadline::after(kFlushPatience));
  }
  void count_miss(cache::Miss miss) { ++(miss == cache::Miss::absent ? out_.removed : out_.unreadable); }

  fleet::Tier& tier_;
  const RecordOf& record_;
  Pushed& out_;
  std::vector<cache::Record> batch_;
  std::size_t batch_bytes_ = 0;
  std::uint64_t handed_over_ = 0;
};

void Push::send() {
  // Believes only this signer's own key. During a key rotation, entries that only the old key signed are
  // written again.
  const std::span<const trust::PublicKey> own(&tier_.signer()->public_key(), 1);
  std::vector<cache::Record> batch;
  batch.swap(batch_);
  batch_bytes_ = 0;
  std::vector<fleet::Asked> asked;
  for (const cache::Record& one : batch) asked.push_back({one.key, one.key_text, fleet::Asked::Text::whole});
  const auto fetched = fetch(tier_, asked, own);
  const std::vector<bool> listed = are_listed(tier_, batch, fetched, own);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (fetched[i].entry && listed[i] && has_same_content(batch[i], *fetched[i].entry)) {
      ++out_.present;
      continue;
    }
    if (fetched[i].fault != fleet::Fault::none) {
      ++out_.failed;
      out_.fault.note(fetched[i].fault, fetched[i].detail);
      continue;
    }
    const auto labels = labels_of(batch[i]);
    if (!labels) {
      ++out_.unreadable;
      continue;
    }
    handed_over_ += tier_.publish(runtime::envelope_of(std::move(batch[i]), *labels), labels->about, nullptr,
                                  fleet::Tier::Full::wait);
  }
}

}  // namespace

Pushed& Pushed::operator+=(const Pushed& later) {
  entries += later.entries, pushed += later.pushed, present += later.present, failed += later.failed;
  unreadable += later.unreadable, removed += later.removed, left += later.left;
  seconds += later.seconds;
  if (!fault) fault = later.fault;
  return *this;
}

Pushed push_entries(fleet::Tier& tier, const std::vector<Key>& keys, const RecordOf& record, bool quiet) {
  const auto start = base::Clock::now();
  Pushed out;
  out.entries = out.left = keys.size();
  Progress progress(keys.size(), !quiet);
  const fleet::Tier::Totals before = tier.totals();
  Push push(tier, record, out);
  for (std::size_t from = 0; from < keys.size() && !out.fault.down; from += kKeysAtOnce) {
    if (PoliteInterrupt::requested()) break;
    const std::size_t reached = std::min(from + kKeysAtOnce, keys.size());
    for (std::size_t i = from; i < reached; ++i) push.add(keys[i]);
    push.send();
    out.left = keys.size() - reached;
    progress.reached(reached);
  }
  tier.flush(base::Deadline::after(kFlushPatience));
  const fleet::Tier::Totals after = tier.totals();
  out.pushed = after.puts - before.puts;
  if (const std::uint64_t lost = push.handed_over() - std::min(push.handed_over(), out.pushed)) {
    out.failed += lost;
    out.fault.note(after.last_fault == fleet::Fault::none ? fleet::Fault::timeout : after.last_fault,
                   after.last_detail);
  }
  out.seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
  return out;
}

Json json_of(const Pushed& pushed) {
  return {{"entries", pushed.entries}, {"pushed", pushed.pushed},         {"present", pushed.present},
          {"failed", pushed.failed},   {"unreadable", pushed.unreadable}, {"left", pushed.left},
          {"removed", pushed.removed}, {"fault", pushed.fault.json()},    {"seconds", pushed.seconds}};
}

std::string text_of(const Pushed& pushed, const std::string& remedy) {
  std::string out = counted(pushed.pushed, "entry", "entries") + " written to the fleet's tier, " +
                    std::to_string(pushed.present) + " there already";
  if (pushed.failed) out += ", " + std::to_string(pushed.failed) + " failed";
  if (pushed.unreadable) out += ", " + std::to_string(pushed.unreadable) + " unreadable here";
  if (pushed.removed)
    out += ", " + std::to_string(pushed.removed) + " no longer here (evicted or removed meanwhile)";
  out += ", in " + human_ms(pushed.seconds * 1000);
  if (pushed.left)
    out += "; " + counted(pushed.left, "entry that is", "entries that are") +
           " here may not be in the tier yet: " + remedy + " to write the rest";
  return out;
}

std::vector<bool> covered_by(fleet::Tier& tier, const std::vector<std::pair<Key, std::string>>& texts,
                             FirstFault& fault) {
  std::vector<bool> out;
  for (std::size_t from = 0; from < texts.size(); from += kKeysAtOnce) {
    std::vector<fleet::Asked> asked;
    for (std::size_t i = from; i < std::min(from + kKeysAtOnce, texts.size()); ++i)
      asked.push_back({texts[i].first, texts[i].second, fleet::Asked::Text::whole});
    for (const auto& fetched : fetch(tier, asked, tier.trusted())) {
      out.push_back(fetched.entry.has_value());
      fault.note(fetched.fault, fetched.detail);
    }
  }
  return out;
}

bool is_usable(const cache::Record& record, std::string& why) try {
  if (!check_entry(record).other_version) return true;
  why = "of another version of kiln";
  return false;
} catch (const Error& error) {
  why = error.what();
  return false;
}

}  // namespace kiln::cli
