// From the log of a compile that failed to sentences that name the construct and say what to do about it in
// the manifest.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/manifest.hpp"

namespace kiln::compile {

/// What was compiled, as far as advice depends on it.
struct AdviceSubject {
  const std::vector<std::string>& options;  ///< the manifest's, as the compiler gets them
  std::string arch;                         ///< "sm_90a"
  std::string_view name_expression;
  source::HostHeaders shims = source::HostHeaders::none;
};

/// At most three sentences, each once, the most specific first; none when nothing fits. The texts that are
/// recognised are those of NVRTC 13.0.
std::vector<std::string> advice_for(std::string_view log, const AdviceSubject& subject);

/// The files of templates/shim/.
std::span<const std::string_view> shimmed_headers();

/// For a worker that died of `signal`; empty when nothing is known about such deaths.
std::string advice_for_crash(int signal, const AdviceSubject& subject);

}  // namespace kiln::compile
