// Step 5 of the path: from an instantiation with its closure and key to an image with its
// facts, or a CompileError.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "compile/compiler/precompiled_header.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/key.hpp"
#include "compile/pool/pool.hpp"
#include "kiln/error.hpp"

namespace kiln::compile {

struct CompileJob {
  const source::Instantiation& unit;
  const source::Closure& closure;
  const MadeKey& key;
  bool want_ptx = false;
  /// Scans again and returns true when the closure is still the same. A file that appeared is a change
  /// that `closure.changed()` cannot see. Called once, when a precompiled header was made. Without this
  /// function no header is made.
  std::function<bool()> same_closure{};
};

/// A fault of this machine, this process or this moment. It says nothing about the source, and other
/// processes are not told.
class LocalFault : public CompileError {
 public:
  using CompileError::CompileError;
};

struct Compiled {
  Facts facts;
  std::string image, ptx;
  /// Why the image must not be published, although it may be served; empty when it may be published.
  /// docs/internals/key.md has the rules ("What is compiled is what was hashed").
  std::string unpublishable;
  std::uint64_t peak_memory = 0;  ///< highest resident memory of the worker, in bytes; 0: not known
};

/// With `headers`, templates that include many headers use precompiled ones; the result is equal. Throws
/// CompileError (failed, timed out, crashed or without memory), Error(no_compiler | unsupported_arch |
/// internal), and Error(deadline) when the pool was stopped.
Compiled compile(const CompileJob& job, const toolchain::Toolkit& toolkit, WorkerPool& pool,
                 const Demand& demand, PrecompiledHeaders* headers = nullptr);

/// Why this unit can never be published, as far as that is known before compiling; empty when it can be.
std::string unpublishable_beforehand(const source::Closure& closure, const toolchain::Toolkit& toolkit);

}  // namespace kiln::compile
