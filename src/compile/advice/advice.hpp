// Advice for a failed compile, made from its log: sentences that name the construct and say what
// to do in the manifest.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/manifest.hpp"

namespace kiln::compile {

/// The properties of a compile that advice depends on.
struct AdviceSubject {
  const std::vector<std::string>& options;  ///< the manifest's options, as the compiler gets them
  std::string arch;                         ///< "sm_90a"
  std::string_view name_expression;
  source::HostHeaders shims = source::HostHeaders::none;
  bool cut_host_code = false;
};

/// At most three sentences without repeats, the most specific first; empty when no rule fits. The rules
/// recognise texts of NVRTC 13.0.
std::vector<std::string> advice_for(std::string_view log, const AdviceSubject& subject);

/// Names of the files of templates/shim/.
std::span<const std::string_view> shimmed_headers();

/// Advice for a worker that `signal` killed; empty when nothing is known about such deaths.
std::string advice_for_crash(int signal, const AdviceSubject& subject);

}  // namespace kiln::compile
