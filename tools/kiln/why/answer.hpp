// The results of `kiln why`, before they are put into words.
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
  std::string device;       ///< device whose tuned choices apply; empty: not known
  std::string toolchain;    ///< first digits of the toolchain whose entries are compared; empty: any
  std::size_t nearest = 1;  ///< entries to compare with
};

/// The step of the lookup path that would answer.
enum class Step { disk, layer, foreign_toolchain, other_arch, waiting, compile, sealed, no_compiler };

struct WhyAnswer {
  Step step = Step::compile;
  source::Resolved resolved;
  std::vector<Parameter> tuned;  ///< the values that a tuned choice gave
  std::string shortest;          ///< "rms_norm T=bf16 H=4096"
  std::string source_name;       ///< "rms_norm.cu"
  std::string fallback;          ///< the generic template; empty: none
  std::string directory;         ///< store that serves it, or would be written to
  runtime::Explanation path;
  std::optional<StoredEntry> entry;  ///< entry that would be served
  std::optional<cache::BoardEntry> flight;
  ProcessLook::State flight_state = ProcessLook::State::unknown;  ///< state of the compiling process
  Nearest nearest;                                                ///< for a miss: the nearest entries
  std::string toolchain;                                          ///< as requested
  std::vector<std::string> nearest_written;                       ///< as a user would write them
  std::string compiler_version;            ///< this host's, "13.0.88"; empty: not known
  std::vector<std::string> other_schemas;  ///< stores that this version cannot read
};
inline bool is_hit(const WhyAnswer& answer) noexcept { return answer.step <= Step::other_arch; }

/// Compiles nothing and writes nothing. Throws as resolve and Store::list do.
WhyAnswer explain(runtime::Service& service, const WhyRequest& request);

}  // namespace kiln::cli
