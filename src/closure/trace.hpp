// What a scan asked the file system and was told, so that the next process can ask the same instead of
// scanning.
//
// A scan is a function of its source, its search directories and the answers it gets: which names are there,
// and what the files hold. The same answers to the same questions give the same closure. Project files are
// read and hashed again; a toolkit header is taken to be the same when its stamp is (Trust::memo).
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

/// What decides the questions: texts, directories in order and who they are. Another one for another scanner.
Digest trace_key(std::string_view source, const std::vector<std::string>& extra, const IncludeSearch& search);

/// Nothing when the closure is none that others may take over: no toolkit header in it, or one that is too
/// young.
std::optional<std::string> encode_trace(const Closure& closure, const std::vector<Asked>& asked,
                                        const IncludeSearch& search);

/// The closure that `trace` is of, `memoised`, when every answer is what it was; nothing otherwise, and for
/// what is no trace. Throws as scan_closure does.
std::optional<Closure> replay(std::string_view trace, IncludeSearch& search);

}  // namespace kiln::source
