// Tuned choices, which are stored beside the images: the key of each, and the store that has it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/lazy.hpp"
#include "compile/key/tuned_choice.hpp"
#include "runtime/state/files.hpp"
#include "runtime/state/stores.hpp"

namespace kiln::runtime {

/// Thread-safe.
class Choices {
 public:
  struct Found {
    Key key;
    compile::TunedChoice choice;
    cache::Record record;
    std::string directory;  ///< directory of the store that has it
  };
  struct Answer {
    std::optional<Found> found;
    bool sure = true;  ///< false: a store could not be read in time, and may have a choice
  };

  Choices(const Config& config, Stores& stores) : config_(config), stores_(stores) {}

  /// The key of the choice among the `free` parameters' candidates on a device. `unit` is the call without a
  /// choice, and `files` are its files.
  static compile::MadeChoiceKey key_of(const source::Instantiation& unit,
                                       const std::vector<std::size_t>& free, const std::string& device,
                                       const KeyedFiles& files);
  /// As above, from the files as they are now. Throws as Files::read.
  static compile::MadeChoiceKey key_of(const source::Instantiation& unit,
                                       const std::vector<std::size_t>& free, const std::string& device,
                                       Files& files) {
    return key_of(unit, free, device, files.read(unit, source::Trust::memo));
  }
  /// Looks in the writable store, the store that is read in its place, and the layers. A damaged choice
  /// counts as absent.
  Answer find(const compile::MadeChoiceKey& made, base::Deadline deadline);
  /// False for a second after a store could not be read, so that callers do not wait for the next failure.
  bool may_ask() const noexcept { return base::Clock::now().time_since_epoch().count() >= rest_until_; }
  /// The record of a choice by its key alone, for copying. This does not count as a use of the choice.
  std::optional<cache::Record> record(const Key& key);
  /// Looks for choices in `stores` alone, in order. REQUIRES: no choice was asked for yet.
  void use_only(std::vector<std::shared_ptr<cache::Store>> stores) { only_.set(std::move(stores)); }
  /// Notes that the first place for a writable store was looked at, and has a store.
  void note_that_a_store_is_there() noexcept { store_was_there_ = true; }

 private:
  std::vector<std::shared_ptr<cache::Store>> stores();

  const Config& config_;
  Stores& stores_;
  base::Lazy<std::vector<std::shared_ptr<cache::Store>>> only_;
  std::atomic<bool> patient_{true};  // false: the last look that waited got no answer
  std::atomic<base::Clock::rep> rest_until_{0};
  std::atomic<bool> store_was_there_{false};
};

}  // namespace kiln::runtime
