// Tuned choices beside the images: under which key one is kept, and who has it.
#include "base/log.hpp"
#include "base/wire.hpp"
#include "runtime/path/unit.hpp"
#include "source/parameter_value.hpp"

namespace kiln::runtime {
namespace {

/// As for images: a stopped writer of another process must not stop this one.
constexpr base::Clock::duration kReadPatience = std::chrono::seconds(5);
/// After that, or after a read error: calls that nobody has decided would each wait anew.
constexpr base::Clock::duration kRest = std::chrono::seconds(1);

}  // namespace

compile::MadeChoiceKey Pipeline::choice_key(const source::Instantiation& unit,
                                            const std::vector<std::size_t>& free, const std::string& device) {
  return choice_key(unit, free, device, read_files(unit));
}

compile::MadeChoiceKey Pipeline::choice_key(const source::Instantiation& unit,
                                            const std::vector<std::size_t>& free, const std::string& device,
                                            const Prepared& prepared) {
  std::vector<std::pair<std::string, std::vector<std::string>>> candidates;
  for (const std::size_t i : free) {
    const source::ParameterSpec& spec = unit.manifest().parameters[i];
    auto& [name, texts] = candidates.emplace_back(spec.name, std::vector<std::string>());
    for (const std::int64_t value : spec.tune) texts.push_back(source::parameter_text(spec, value));
  }
  return compile::make_choice_key(prepared.made, candidates, device);
}

void Pipeline::use_choices_of(std::vector<std::shared_ptr<cache::Store>> stores) {
  choice_stores_.set(std::move(stores));
}

/// The machine's own store first: what was tuned here is meant to beat what was shipped. It is not opened
/// where there is none, since a process that a layer serves whole needs none.
std::vector<std::shared_ptr<cache::Store>> Pipeline::choice_stores() {
  if (const auto* said = choice_stores_.made()) return *said;
  std::vector<std::shared_ptr<cache::Store>> out;
  if (places_.made() || store_was_there_ || any_store(config_)) {
    const auto& [writable, readable] = places();
    for (const auto& store : {writable, readable})
      if (store) out.push_back(store);
  }
  out.insert(out.end(), layers().begin(), layers().end());
  return out;
}

Pipeline::ChoiceAnswer Pipeline::find_choice(const compile::MadeChoiceKey& made, base::Deadline deadline) {
  const auto own = base::Deadline::after(choices_patient_ ? kReadPatience : base::Clock::duration{});
  const auto patience = earlier(deadline, own);
  ChoiceAnswer out;
  for (const auto& store : choice_stores()) {
    cache::GetResult got = store->get(made.key, made.text, patience);
    if (!got.record) {
      if (got.miss == cache::Miss::gate_timeout || got.miss == cache::Miss::unreadable) out.sure = false;
      continue;
    }
    try {
      compile::TunedChoice choice = compile::decode_choice(got.record->facts);
      out.found = FoundChoice{made.key, std::move(choice), std::move(*got.record), store->directory()};
      break;
    } catch (const base::Malformed& error) {
      base::debug("tuned choice " + made.key.hex() + " in '" + store->directory() + "': " + error.what());
    }
  }
  if (out.found || out.sure) {
    choices_patient_ = true;
  } else if (patience.at() == own.at()) {  // and not because the caller was in a hurry
    choices_patient_ = false;
    choices_rest_until_ = (base::Clock::now() + kRest).time_since_epoch().count();
  }
  return out;
}

std::optional<cache::Record> Pipeline::choice_record(const Key& key) {
  for (const auto& store : choice_stores())
    if (auto record = store->peek(key, base::Deadline::after(kReadPatience))) return record;
  return std::nullopt;
}

}  // namespace kiln::runtime
