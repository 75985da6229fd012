// Packs a caller's values into the words that are the keys of the ready tables. Takes no lock, allocates
// nothing, calls neither system nor driver.
#pragma once

#include <cstdint>

#include "kiln/kiln.h"
#include "manifest/manifest.hpp"
#include "runtime/kernels/ready_table.hpp"

namespace kiln::runtime {

/// For one manifest, which must outlive it. Immutable, thread-safe.
class ParameterPacking {
 public:
  explicit ParameterPacking(const source::Manifest& manifest);

  /// The number of the manifest's parameters.
  std::uint32_t count() const noexcept { return parameters_; }
  /// The kernel for up to four numbers of the parameters' own kinds; null for everything else. Calls nothing
  /// at all.
  [[gnu::always_inline]] const LoadedKernel* find_plain(const ReadyTable& table, const char* const* names,
                                                        const kiln_value* values,
                                                        std::size_t count) const noexcept {
    if (names || !values || count > parameters_ || count > ReadyTable::kFew) return nullptr;
    PackedParameters packed;
    const auto plain = [&](std::uint32_t i, bool& fits) {
      fits = values[i].kind == kinds_[i];
      return values[i].integer;
    };
    return packed.set_plain(static_cast<std::uint32_t>(count), plain) ? table.find_few(packed) : nullptr;
  }
  /// The kernel for values of any kind, in order or by name; null when there is none.
  const LoadedKernel* find(const ReadyTable& table, const char* const* names, const kiln_value* values,
                           std::size_t count) const noexcept;
  /// False when the values must be resolved to be understood.
  bool pack(const char* const* names, const kiln_value* values, std::size_t count,
            PackedParameters& out) const noexcept;

 private:
  bool pack_one(std::size_t parameter, const kiln_value& value, std::int64_t& out) const noexcept;
  bool pack_named(const char* const* names, const kiln_value* values, std::size_t count,
                  std::int64_t* out) const noexcept;

  const source::Manifest& manifest_;
  const std::uint32_t parameters_;
  /// KILN_VALUE_* of number parameters; other parameters have no such kind.
  std::int64_t kinds_[source::kMaxParameters] = {};
};

}  // namespace kiln::runtime
