// The steps of a compile that may create, prove or use a precompiled header.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "closure/closure.hpp"
#include "compile/compiler/precompiled_header.hpp"
#include "compile/pool/process.hpp"
#include "toolchain/locate.hpp"

namespace kiln::compile {

/// Sends a request to some worker, within the compile's deadline.
using Ask = std::function<WorkerProcess::Answer(const WorkerRequest&)>;

struct HeaderUnit {
  const source::Closure& closure;
  const toolchain::Toolkit& toolkit;
  const std::function<bool()>& same_closure;  ///< CompileJob's
  bool more_to_come = false;                  ///< a plan is being worked off: the first asker may create it
};

/// Answers what `ask(request)` answers, sooner where a precompiled header may be used. Faults of the header
/// are no faults of the compile: it is done again without, once. Throws what `ask` throws.
WorkerProcess::Answer ask_with_headers(const WorkerRequest& request, const HeaderUnit& unit,
                                       PrecompiledHeaders& headers, const Ask& ask);

/// Under which a header made of this unit is found; nothing when it shall have none: too light, or its
/// content is not covered by what was hashed. A digest of the toolchain's build-ids, the arch, the options,
/// the source (all of it: what is read is then the same for every user, file by file), the names of the
/// search directories, and of every file of the closure its name and content. Not of it: name expressions,
/// and the seed, neither of which the front end has seen when it writes the header.
std::optional<Digest> header_name(const WorkerRequest& request, const source::Closure& closure,
                                  const toolchain::Toolkit& toolkit, const HeaderSettings& settings);

/// The first file in the compiler's own list that the closure does not have.
/// After an answer that refuses_trace: the compile without a trace, and the headers from a pass over the
/// syntax, whose trace is small. A worker whose trace was refused is gone: its compiler does not recover.
WorkerProcess::Answer ask_without_trace(WorkerRequest request, const Ask& ask);

std::optional<std::string> read_but_not_hashed(const source::Closure& closure,
                                               const std::vector<std::string>& headers_read);

}  // namespace kiln::compile
