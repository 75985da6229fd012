// A tuned choice: the values that are best on a device, for the parameters that a manifest leaves to `tune`.
// Stores, layers and bundles keep it as a record beside the images.
//
// Key text, schema 1, lines as in compile/key/key.hpp:
//
//     kiln-key 8:choice/1
//     ...                                     the specialisation section of the call without a choice:
//                                             source, closure, arch, parameters, options; no kiln-key line
//     tune 7:THREADS 2:64 3:128               each free parameter with its candidates
//     device 11:NVIDIA H200                   the second section: the name from cuDeviceGetName
//
// So a changed source, header, default or candidate list gives another key. The first half of a key finds the
// choices for all devices.
//
// The record's facts (base/wire.hpp), version 1; its image is empty:
//
//     u32 kChoiceMark, u32 1                  no facts of an image begin so: older versions of kiln take it
//                                             for facts of another version
//     template, arch, device
//     list of (name, value)                   the parameters that were not free
//     list of (name, value)                   the chosen values
//     list of (arguments, f64 us, f64 us)     each timed call: time with the choice, time with the default
//     u32 candidates                          number of timed candidates, with the default
//     version of kiln, i64 seconds since 1970 (0 in a bundle)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compile/key/key.hpp"
#include "kiln/digest.hpp"
#include "kiln/specialization.hpp"

namespace kiln::compile {

struct TunedChoice {
  struct Timing {
    std::string arguments;  ///< arguments of the timed call: "rows=64 stride_x=4096"
    double us = 0, default_us = 0;
  };
  std::string template_name, arch, device;
  std::vector<Parameter> fixed, chosen;
  std::vector<Timing> timings;
  std::uint32_t candidates = 0;
  std::string kiln_version;
  std::int64_t created_s = 0;

  /// "rms_norm T=bf16 H=4096 sm_90a on NVIDIA H200".
  std::string label() const;
};

inline constexpr std::uint32_t kChoiceMark = 0x656e7574;  // "tune"

struct MadeChoiceKey {
  Key key;
  std::string text;
};

/// `made` is the key of the call without a choice; its toolchain half does not matter. `candidates` are the
/// names of the free parameters, each with the texts of its `tune`.
MadeChoiceKey make_choice_key(const MadeKey& made,
                              const std::vector<std::pair<std::string, std::vector<std::string>>>& candidates,
                              std::string_view device);

/// True for the key text of a choice: of any version, or of this version only.
bool is_choice_text(std::string_view key_text) noexcept;
bool is_choice_of_this_version(std::string_view key_text) noexcept;
/// The key of a choice, from its key text.
Key choice_key_of_text(std::string_view text);

bool is_choice(std::string_view facts) noexcept;
std::string encode(const TunedChoice& choice);
/// Throws base::Malformed, also for facts of an image.
TunedChoice decode_choice(std::string_view facts);

}  // namespace kiln::compile
