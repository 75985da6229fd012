// One search of `kiln tune`: a call's candidates compiled, checked, timed, and the best of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/key/tuned_choice.hpp"
#include "instantiate/tune.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/run/case.hpp"

namespace kiln::cli {

/// What is tuned: the values of a template's parameters, and the run-time sizes to time it at.
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
  double ratio = 0;        ///< geometric mean of the time over the default's
  bool bits_equal = true;
  std::string dropped;  ///< not empty: why it was not timed
};

struct TuneResult {
  std::vector<Parameter> fixed;
  std::vector<std::string> sizes;     ///< "rows=64", as given; empty: the manifest's values
  std::vector<TriedCandidate> tried;  ///< the default first
  std::vector<std::pair<std::string, std::string>> refused;  ///< by the manifest, and why
  std::size_t best = 0;
  double noise = 0;      ///< of the default against itself, and what is asked for at least
  bool checked = false;  ///< against the reference: there is one
  std::string error;     ///< not empty: a candidate is wrong, and nothing may be stored
  bool interrupted = false;
  compile::MadeChoiceKey key;
  compile::TunedChoice choice;  ///< REQUIRES: neither error nor interrupted
};

/// Whether a search has anything to choose.
bool tunes(const source::Manifest& manifest, const std::vector<Parameter>& given);
/// The candidates alone, without a GPU.
TuneResult list_candidates(const source::Manifest& manifest, const TuneRequest& request, base::Arch arch);

/// Compiles through the cache, with progress. Throws Error, CompileError when the default itself cannot be
/// had.
TuneResult search(Context& context, PrimaryContext& gpu, runtime::KernelTemplate& opened,
                  const TuneRequest& request);

}  // namespace kiln::cli
