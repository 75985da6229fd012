// Converts cache entries to bundle entries and back, and checks bundle entries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/blob/blob.hpp"
#include "cache/bundle/format.hpp"
#include "cache/record/record.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/tuned_choice.hpp"

namespace kiln::cli {

/// Removes the values that differ from run to run (creation time, phase times). Returns nothing for facts of
/// another version of kiln.
std::optional<cache::Record> as_bundled(cache::Record record);

/// An entry whose parts agree with each other.
struct CheckedEntry {
  bool other_version = false;  ///< another version of kiln wrote the key or facts; no other field is set
  compile::Facts facts;
  std::optional<compile::TunedChoice> choice;  ///< set for a tuned choice, which has no image and no `facts`
  std::optional<cache::BlobFacts> blob;        ///< set for a blob or a part of one, which has no `facts`

  /// "rms_norm T=bf16 H=4096 sm_90a". Printable whatever the bundle contains.
  std::string label() const;
};
/// Checks an entry. Throws bundle::Refused unless all of these hold:
/// - the key belongs to the key text;
/// - the facts agree with the key text, and have names that a template may have;
/// - the image is a cubin for that arch, and has this kernel with these arguments and resources.
/// A tuned choice must have no image, and its facts must agree with its key text. The facts of
/// a blob must agree with its key text, and its image must hold as many bytes as they say.
CheckedEntry check_entry(const cache::Record& entry);

/// The record as a store keeps it, with the creation time `now_s` in seconds since 1970.
cache::Record as_stored(cache::Record entry, CheckedEntry checked, std::int64_t now_s);

}  // namespace kiln::cli
