// What `kiln why` finds out, before it is said.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/flight/board.hpp"
#include "runtime/service/service.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/nearest.hpp"
#include "tools/kiln/store/process_look.hpp"

namespace kiln::cli {

struct WhyRequest {
  std::string template_name;
  std::vector<std::string> values;  ///< "H=4096"
  base::Arch arch;
  std::string device;       ///< whose tuned choices hold; empty: none is known
  std::string toolchain;    ///< whose entries are compared with: its first digits; empty: any
  std::size_t nearest = 1;  ///< entries to compare with
};

/// The step of the path that would answer.
enum class Step { disk, layer, foreign_toolchain, waiting, compile, sealed, no_compiler };

struct WhyAnswer {
  Step step = Step::compile;
  source::Resolved resolved;
  std::vector<Parameter> tuned;  ///< those of its values that a tuned choice gave
  std::string shortest;          ///< "rms_norm T=bf16 H=4096"
  std::string source_name;       ///< "rms_norm.cu"
  std::string fallback;          ///< the generic template; empty: none
  std::string directory;         ///< of the store that serves, or would be written to
  runtime::Explanation path;
  std::optional<StoredEntry> entry;  ///< that would be served
  std::optional<cache::BoardEntry> flight;
  ProcessLook::State flight_state = ProcessLook::State::unknown;  ///< of the one that compiles
  Nearest nearest;                                                ///< of a miss
  std::string toolchain;                                          ///< as asked
  std::vector<std::string> nearest_written;                       ///< each as one would type it
  std::string compiler_version;            ///< this host's, "13.0.88"; empty: not known
  std::vector<std::string> other_schemas;  ///< directories of stores that this version cannot read
};
inline bool is_hit(const WhyAnswer& answer) noexcept { return answer.step <= Step::foreign_toolchain; }

/// Compiles nothing and writes nothing. Throws as resolve and as Store::list.
WhyAnswer explain(runtime::Service& service, const WhyRequest& request);

}  // namespace kiln::cli
