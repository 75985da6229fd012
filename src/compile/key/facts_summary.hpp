// What sums over many entries need of their facts, without decoding the rest.
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
/// Into `out`, whose room is used again. Throws base::Malformed.
void decode_summary(std::string_view bytes, FactsSummary& out);

}  // namespace kiln::compile
