#include "runtime/tuned/choices.hpp"

#include <cstdint>

#include "base/log.hpp"
#include "base/wire.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::runtime {
namespace {

/// The longest wait for a read, as for images: a stopped writer of another process must not stop this one.
constexpr base::Clock::duration kReadPatience = std::chrono::seconds(5);
/// The pause after such a wait or a read error. Without it, each undecided call would wait again.
constexpr base::Clock::duration kRest = std::chrono::seconds(1);

}  // namespace

compile::MadeChoiceKey Choices::key_of(const source::Instantiation& unit,
                                       const std::vector<std::size_t>& free, const std::string& device,
                                       const KeyedFiles& files) {
  std::vector<std::pair<std::string, std::vector<std::string>>> candidates;
  for (const std::size_t i : free) {
    const source::ParameterSpec& spec = unit.manifest().parameters[i];
    auto& [name, texts] = candidates.emplace_back(spec.name, std::vector<std::string>());
    for (const std::int64_t value : spec.tune) texts.push_back(source::parameter_text(spec, value));
  }
  return compile::make_choice_key(files.made, candidates, device);
}

/// The machine's own store comes first: a choice that was tuned here is meant to beat a shipped one. It is
/// not opened when it does not exist, because a process that layers serve completely needs none.
std::vector<std::shared_ptr<cache::Store>> Choices::stores() {
  if (const auto* said = only_.made()) return *said;
  std::vector<std::shared_ptr<cache::Store>> out;
  if (stores_.places_are_known() || store_was_there_ || any_store(config_)) {
    const auto& [writable, readable] = stores_.places();
    for (const auto& store : {writable, readable})
      if (store) out.push_back(store);
  }
  const auto& layers = stores_.layers();
  out.insert(out.end(), layers.begin(), layers.end());
  return out;
}

Choices::Answer Choices::find(const compile::MadeChoiceKey& made, base::Deadline deadline) {
  const auto own = base::Deadline::after(patient_ ? kReadPatience : base::Clock::duration{});
  const auto patience = earlier(deadline, own);
  Answer out;
  for (const auto& store : stores()) {
    cache::GetResult got = store->get(made.key, made.text, patience);
    if (!got.record) {
      if (got.miss == cache::Miss::gate_timeout || got.miss == cache::Miss::unreadable) out.sure = false;
      continue;
    }
    try {
      compile::TunedChoice choice = compile::decode_choice(got.record->facts);
      out.found = Found{made.key, std::move(choice), std::move(*got.record), store->directory()};
      break;
    } catch (const base::Malformed& error) {
      base::debug("tuned choice " + made.key.hex() + " in '" + store->directory() + "': " + error.what());
    }
  }
  if (out.found || out.sure) {
    patient_ = true;
  } else if (patience.at() == own.at()) {  // and not because the caller was in a hurry
    patient_ = false;
    rest_until_ = (base::Clock::now() + kRest).time_since_epoch().count();
  }
  return out;
}

std::optional<cache::Record> Choices::record(const Key& key) {
  for (const auto& store : stores())
    if (auto record = store->peek(key, base::Deadline::after(kReadPatience))) return record;
  return std::nullopt;
}

}  // namespace kiln::runtime
