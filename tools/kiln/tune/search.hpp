// One search of `kiln tune`: compiles, checks and times a call's candidates, and picks the best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/key/tuned_choice.hpp"
#include "instantiate/tune.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/run/run.hpp"

namespace kiln::cli {

/// The call to tune: parameter values, and the run-time sizes at which it is timed.
struct TuneRequest {
  std::vector<Parameter> given;
  std::vector<GivenArguments> sizes;  ///< at least one
  std::uint64_t seed = 1;
};

struct TriedCandidate {
  std::vector<Parameter> chosen;
  std::uint32_t registers = 0;
  std::uint64_t spill_bytes = 0;
  std::vector<double> us;  ///< by size; empty: not timed
  double ratio = 0;        ///< geometric mean of its times divided by the default's
  bool bits_equal = true;
  std::string dropped;  ///< why it left the search; empty: it did not
};

struct TuneResult {
  std::vector<Parameter> fixed;
  std::vector<std::string> sizes;     ///< "rows=64" as given; empty: the manifest's values
  std::vector<TriedCandidate> tried;  ///< the default first
  std::vector<std::pair<std::string, std::string>> refused;  ///< by the manifest, with the reason
  std::size_t best = 0;
  double noise = 0;      ///< the default against itself, at least 1 %; a choice must gain more
  bool checked = false;  ///< compared with the reference, which exists
  std::string error;     ///< why a candidate is wrong, so that nothing may be stored; empty: none is
  bool interrupted = false;
  compile::MadeChoiceKey key;
  compile::TunedChoice choice;  ///< REQUIRES: `error` is empty, and not interrupted
};

/// True when a search has candidates to choose from.
bool tunes(const source::Manifest& manifest, const std::vector<Parameter>& given);
/// Lists the candidates without a GPU.
TuneResult list_candidates(const source::Manifest& manifest, const TuneRequest& request, base::Arch arch);

/// Compiles through the cache and shows progress. Throws Error, and CompileError when the default itself
/// cannot be obtained.
TuneResult search(Context& context, PrimaryContext& gpu, runtime::KernelTemplate& opened,
                  const TuneRequest& request);

}  // namespace kiln::cli
