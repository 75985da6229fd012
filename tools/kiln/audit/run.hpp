// Recompiling cached entries and comparing them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/service.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

struct AuditResult {
  enum class State {
    not_started,     ///< Ctrl-C came first
    equal,           ///< today's compile gives the same bytes
    differs,         ///< it does not, under the same key
    damaged,         ///< the entry's bytes are wrong
    removed,         ///< the entry went away after it was chosen: evicted, cleared or dropped by gc
    not_comparable,  ///< today's files have another key
    failed           ///< today's compile failed, or another process kept the store locked
  };
  State state = State::not_started;
  std::string reason;   ///< for people; empty when equal
  std::string section;  ///< of a different image, see ImageDifference
  std::uint64_t compiled_bytes = 0;
  double compile_ms = 0;
};
std::string_view name_of(AuditResult::State state) noexcept;

/// `count` of the entries, at most all: which ones depends on the seed and the keys alone, so that the same
/// seed chooses the same while they are there. In the order of the entries.
std::vector<StoredEntry> sample_of(std::vector<StoredEntry> entries, std::size_t count, std::uint64_t seed);

struct AuditOptions {
  int jobs = 1;
  bool lines_on_stdout = true;
};
/// One result for each entry. Shows progress; the first Ctrl-C starts no more. Reads the store and nothing
/// else of it.
std::vector<AuditResult> run_audit(runtime::Service& service, cache::Store& store,
                                   const std::vector<StoredEntry>& entries, const AuditOptions& options);

}  // namespace kiln::cli
