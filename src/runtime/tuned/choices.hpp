// Tuned choices beside the images: under which key one is kept, and which store has it.
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
    std::string directory;  ///< of the store that has it
  };
  struct Answer {
    std::optional<Found> found;
    bool sure = true;  ///< false: a store could not be read in time, and may have one
  };

  Choices(const Config& config, Stores& stores) : config_(config), stores_(stores) {}

  /// Where the choice among the `free` parameters' candidates is kept for a device; `unit` is of the call
  /// without a choice, and `files` are its files.
  static compile::MadeChoiceKey key_of(const source::Instantiation& unit,
                                       const std::vector<std::size_t>& free, const std::string& device,
                                       const KeyedFiles& files);
  /// The same of the files as they are now. Throws as Files::read.
  static compile::MadeChoiceKey key_of(const source::Instantiation& unit,
                                       const std::vector<std::size_t>& free, const std::string& device,
                                       Files& files) {
    return key_of(unit, free, device, files.read(unit, source::Trust::memo));
  }
  /// In the writable store, in what else is read in its place, in the layers. A damaged choice is none.
  Answer find(const compile::MadeChoiceKey& made, base::Deadline deadline);
  /// False for a second after a store could not be read: nobody need wait for the next look to fail.
  bool may_ask() const noexcept { return base::Clock::now().time_since_epoch().count() >= rest_until_; }
  /// The record of a choice by its key alone, for copying it. It is no use of the choice.
  std::optional<cache::Record> record(const Key& key);
  /// Choices are looked for in these alone, in order. REQUIRES: none was asked for yet.
  void use_only(std::vector<std::shared_ptr<cache::Store>> stores) { only_.set(std::move(stores)); }
  /// The first place that a writable store may have was looked at, and has one.
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
