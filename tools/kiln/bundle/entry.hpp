// Entries of a cache as entries of a bundle, and back: what is left out on the way, and what must hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/bundle/format.hpp"
#include "cache/record/record.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/tuned_choice.hpp"

namespace kiln::cli {

/// Without what differs from run to run (the time of its making, how long the phases took). Nothing when its
/// facts are of another version of kiln.
std::optional<cache::Record> as_bundled(cache::Record record);

/// An entry whose parts agree with each other.
struct CheckedEntry {
  bool other_version = false;  ///< of kiln's key or facts: nothing else is known about it
  compile::Facts facts;
  std::optional<compile::TunedChoice> choice;  ///< then it is no image, and `facts` means nothing

  /// "rms_norm T=bf16 H=4096 sm_90a", printable whatever the bundle says.
  std::string label() const;
};
/// Throws bundle::Refused unless the key is that of the key text, the facts say what the key text says with
/// names that a template may have, and the image is a cubin for that arch that has this kernel with these
/// arguments and resources. A tuned choice has no image; its facts say what its key text says.
CheckedEntry check_entry(const cache::Record& entry);

/// As the store keeps it: made at `now_s`, seconds since 1970.
cache::Record as_stored(cache::Record entry, CheckedEntry checked, std::int64_t now_s);

}  // namespace kiln::cli
