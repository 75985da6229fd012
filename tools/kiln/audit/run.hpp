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
    not_started,     ///< Ctrl-C came before its turn
    equal,           ///< today's compile gives the same bytes
    differs,         ///< today's compile gives other bytes under the same key
    damaged,         ///< the entry's bytes are wrong
    removed,         ///< the entry was removed after it was chosen: evicted, cleared or dropped by gc
    not_comparable,  ///< the key of today's files is another one
    failed           ///< today's compile failed, or another process kept the store locked
  };
  State state = State::not_started;
  std::string reason;   ///< for people; empty when equal
  std::string section;  ///< set when the image differs, see ImageDifference
  std::uint64_t compiled_bytes = 0;
  double compile_ms = 0;
};
std::string_view name_of(AuditResult::State state) noexcept;

/// Chooses `count` of the entries, at most all, and keeps their order. The choice depends only on the seed
/// and the keys, so a seed chooses the same entries as long as they exist.
std::vector<StoredEntry> sample_of(std::vector<StoredEntry> entries, std::size_t count, std::uint64_t seed);

struct AuditOptions {
  int jobs = 1;
  bool lines_on_stdout = true;
};
/// Returns one result for each entry, and shows progress. After the first Ctrl-C no further entry is started.
/// The store is only read.
std::vector<AuditResult> run_audit(runtime::Service& service, cache::Store& store,
                                   const std::vector<StoredEntry>& entries, const AuditOptions& options);

}  // namespace kiln::cli
