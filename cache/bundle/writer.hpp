// The bundle writer takes entries in the order of their keys and writes the same bytes for the same entries.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/bundle/format.hpp"
#include "cache/compression/zstd.hpp"
#include "cache/trust/blake2b.hpp"

namespace kiln::bundle {

class Writer {
 public:
  explicit Writer(const base::Write& out);
  /// Throws Error(invalid_argument) unless the keys ascend strictly and the entry is within the limits of a
  /// reader.
  void add(const cache::Record& record);
  /// Writes the end mark. REQUIRES: it is called once, after the last entry.
  Summary end();

 private:
  void put(std::string_view bytes);
  ContentDigest put_digest();
  compression::Compressor out_;
  trust::Blake2b hash_{kContentDigestBytes};
  std::optional<Key> last_;
  Summary summary_;
};

}  // namespace kiln::bundle
