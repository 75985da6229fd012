// Step 5 of the path: an instantiation with its closure and key in, an image with its facts out, or a
// CompileError.
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
  /// Scans again, and says whether the closure is still the same: for what `closure.changed()` cannot see, a
  /// file that appeared. Asked once, when a precompiled header was made; without it, none is.
  std::function<bool()> same_closure{};
};

/// Of this machine, this process or this moment: says nothing about the source, nor to other processes.
class LocalFault : public CompileError {
 public:
  using CompileError::CompileError;
};

struct Compiled {
  Facts facts;
  std::string image, ptx;
  /// Not empty: serve it, do not publish it, and this is why (DESIGN 4: what the key cannot see, it refuses).
  std::string unpublishable;
  std::uint64_t peak_memory = 0;  ///< bytes resident at the most in the worker; 0: not known
};

/// With `headers`, templates with heavy headers use precompiled ones: the result is the same. Throws
/// CompileError (failed, timed out, crashed or without memory), Error(no_compiler | unsupported_arch |
/// internal), and Error(deadline) when the pool was stopped.
Compiled compile(const CompileJob& job, const toolchain::Toolkit& toolkit, WorkerPool& pool,
                 const Demand& demand, PrecompiledHeaders* headers = nullptr);

/// Why this unit can never be published, known before compiling; empty when it can.
std::string unpublishable_beforehand(const source::Closure& closure, const toolchain::Toolkit& toolkit);

}  // namespace kiln::compile
