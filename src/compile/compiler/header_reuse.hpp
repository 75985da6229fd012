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

/// Sends a request to a worker, within the compile's deadline.
using Ask = std::function<WorkerProcess::Answer(const WorkerRequest&)>;

struct HeaderUnit {
  const source::Closure& closure;
  const toolchain::Toolkit& toolkit;
  const std::function<bool()>& same_closure;  ///< see CompileJob
  bool more_to_come = false;  ///< a plan is being compiled: its first compile may create the header
};

/// Gives the answer of `ask(request)`, but sooner when a precompiled header can be used. A fault of the
/// header does not fail the compile, which is then done once more without a header. Throws what `ask` throws.
WorkerProcess::Answer ask_with_headers(const WorkerRequest& request, const HeaderUnit& unit,
                                       PrecompiledHeaders& headers, const Ask& ask);

/// The name under which a precompiled header for this unit is found. Nothing when the unit gets no
/// header, because it includes too few files or because the hashed data does not cover its content.
/// The name is a digest of:
/// - the identities of the toolchain's libraries, the arch, the program's name, the heap's size and the options
/// - the whole source, so that every user of the header reads the same files
/// - the names of the search directories
/// - symbolic name and content of each file of the closure
///
/// Name expressions and the seed are left out: the front end has seen neither when it writes the header.
std::optional<Digest> header_name(const WorkerRequest& request, const source::Closure& closure,
                                  const toolchain::Toolkit& toolkit, const HeaderSettings& settings);

/// For an answer that refuses_trace(): compiles without a trace, then takes the headers from a pass
/// over the syntax, whose trace is small. The worker whose trace was refused is gone, because its
/// compiler does not recover.
WorkerProcess::Answer ask_without_trace(WorkerRequest request, const Ask& ask);

/// The first file of the compiler's own list that is not in the closure; nothing when all are.
std::optional<std::string> read_but_not_hashed(const source::Closure& closure,
                                               const std::vector<std::string>& headers_read);

}  // namespace kiln::compile
