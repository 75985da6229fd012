// Facts that are recorded with an image: everything about the kernel that would otherwise need a
// driver or another compile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/specialization.hpp"

namespace kiln::compile {

struct ArgumentFact {
  std::uint16_t ordinal = 0;
  std::uint32_t size = 0;  ///< bytes; offsets shift between archs and are not recorded
};

/// One entry point of an image.
struct EntryFacts {
  std::string entry;  ///< its name in the manifest; empty for the first entry point
  std::string name_expression, lowered_name;
  std::vector<ArgumentFact> arguments;
  std::uint32_t registers = 0, stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0, shared_bytes = 0,
                max_threads = 0;
  std::array<std::uint32_t, 3> required_block{}, cluster{};
  std::vector<std::string> performance_warnings;  ///< ptxas C75xx lines

  std::uint64_t spill_bytes() const noexcept { return std::uint64_t{spill_store_bytes} + spill_load_bytes; }
};

/// A __device__ or __constant__ variable of an image.
struct GlobalFact {
  std::string name, lowered_name;
  std::uint64_t bytes = 0;
};

/// An integer constant of the source.
struct ExportFact {
  std::string name;
  std::int64_t value = 0;
};

/// The first entry point, and everything else of the image.
struct Facts : EntryFacts {
  std::string unit;  ///< template name, or NAME@reference
  std::vector<Parameter> parameters;
  std::string arch;
  std::vector<EntryFacts> entries;  ///< entry points after the first
  std::vector<GlobalFact> globals;
  std::vector<ExportFact> exports;
  std::string compiler_version;  ///< "13.0"
  double frontend_ms = 0, nvvm_ms = 0, ptxas_ms = 0, compile_ms = 0;
  std::uint64_t peak_memory = 0;  ///< highest resident memory of its worker, in bytes; 0: not known
  std::int64_t created_s = 0;     ///< unix time; for people, never part of an identity
  bool project_header_through_toolkit = false;  ///< such a record is never served for another toolchain
  std::string log;                              ///< diagnostics of the successful compile, at most 16 KB

  Specialization specialization() const { return {unit, parameters}; }
};

/// Part of the key: facts of another version make another key, so they are never taken for damage.
inline constexpr std::uint32_t kFactsVersion = 2;

/// The part of encoded facts that says what was compiled, as views into the encoded bytes.
struct FactsIdentity {
  std::string_view unit, arch;
  std::vector<std::pair<std::string_view, std::string_view>> parameters;
};

std::string encode(const Facts& facts);
/// Throws base::Malformed.
Facts decode_facts(std::string_view bytes);
/// Decodes only the identity, into `out`, whose memory is reused. Throws base::Malformed.
void decode_identity(std::string_view bytes, FactsIdentity& out);

}  // namespace kiln::compile
