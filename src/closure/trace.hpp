// The questions and answers of a scan, so that the next process can ask the same
// questions instead of scanning.
//
// A scan depends only on its source, its search directories and the answers of the file system: which names
// exist, and what the files contain. Equal answers give an equal closure. Project files are read and hashed
// again. A toolkit header counts as unchanged when its stamp is equal (Trust::memo).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "closure/closure.hpp"
#include "closure/questions.hpp"

namespace kiln::source {

class IncludeSearch;

/// Digest of everything that decides the questions: the texts, and the directories in order with their
/// identity. Another version of the scanner gives another digest.
Digest trace_key(std::string_view source, const std::vector<std::string>& extra, const IncludeSearch& search);

/// Nothing when other processes must not use the closure: it has no toolkit header, or one that is too young.
std::optional<std::string> encode_trace(const Closure& closure, const std::vector<Asked>& asked,
                                        const IncludeSearch& search);

/// The closure of `trace`, marked `memoised`, when every answer is still the same. Nothing otherwise, and for
/// a text that is not a trace. Throws as scan_closure does.
std::optional<Closure> replay(std::string_view trace, IncludeSearch& search);

}  // namespace kiln::source
