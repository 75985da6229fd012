// Tuned choices beside the images: under which key one is kept, and who has it.
#include "base/log.hpp"
#include "base/wire.hpp"
#include "runtime/pipeline_unit.hpp"
#include "source/parameter_value.hpp"

namespace kiln::runtime {
namespace {

/// As for images: a stopped writer of another process must not stop this one.
constexpr auto kReadPatience = std::chrono::seconds(5);

}  // namespace

compile::MadeChoiceKey Pipeline::choice_key(const source::Instantiation& unit,
                                            const std::vector<std::size_t>& free, const std::string& device) {
  std::vector<std::pair<std::string, std::vector<std::string>>> candidates;
  for (const std::size_t i : free) {
    const source::ParameterSpec& spec = unit.manifest().parameters[i];
    auto& [name, texts] = candidates.emplace_back(spec.name, std::vector<std::string>());
    for (const std::int64_t value : spec.tune) texts.push_back(source::parameter_text(spec, value));
  }
  return compile::make_choice_key(prepare(unit, source::Trust::memo).made, candidates, device);
}

void Pipeline::use_choices_of(std::vector<std::shared_ptr<cache::Store>> stores) {
  choice_stores_.set(std::move(stores));
}

/// The machine's own store first: what was tuned here is meant to beat what was shipped. It is not opened
/// where there is none, since a process that a layer serves whole needs none.
std::vector<std::shared_ptr<cache::Store>> Pipeline::choice_stores() {
  if (const auto* said = choice_stores_.made()) return *said;
  std::vector<std::shared_ptr<cache::Store>> out;
  if (places_.made() || any_store(config_)) {
    const auto& [writable, readable] = places();
    for (const auto& store : {writable, readable})
      if (store) out.push_back(store);
  }
  out.insert(out.end(), layers().begin(), layers().end());
  return out;
}

std::optional<Pipeline::FoundChoice> Pipeline::find_choice(const compile::MadeChoiceKey& made,
                                                           base::Deadline deadline) {
  const auto patience = earlier(deadline, base::Deadline::after(kReadPatience));
  for (const auto& store : choice_stores()) {
    cache::GetResult got = store->get(made.key, made.text, patience);
    if (!got.record) continue;
    try {
      compile::TunedChoice choice = compile::decode_choice(got.record->facts);
      return FoundChoice{made.key, std::move(choice), std::move(*got.record), store->directory()};
    } catch (const base::Malformed& error) {
      base::debug("tuned choice " + made.key.hex() + " in '" + store->directory() + "': " + error.what());
    }
  }
  return std::nullopt;
}

std::optional<cache::Record> Pipeline::choice_record(const Key& key) {
  for (const auto& store : choice_stores())
    if (auto record = store->peek(key, base::Deadline::after(kReadPatience))) return record;
  return std::nullopt;
}

}  // namespace kiln::runtime
