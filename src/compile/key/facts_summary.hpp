// The few facts that sums over many entries need, without decoding the rest.
#pragma once

#include <cstdint>

#include "compile/key/facts.hpp"

namespace kiln::compile {

/// Views into the encoded facts.
struct FactsSummary : FactsIdentity {
  std::string_view compiler_version;
  double compile_ms = 0;
  std::int64_t created_s = 0;
};
/// Decodes into `out`, whose memory is reused. Throws base::Malformed.
void decode_summary(std::string_view bytes, FactsSummary& out);

}  // namespace kiln::compile
