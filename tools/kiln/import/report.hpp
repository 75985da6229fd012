// The final message of `kiln import`.
#pragma once

#include "base/arch.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/import/place.hpp"

namespace kiln::cli {

struct Imported {
  const ImportDraft& draft;
  const Proof& proof;
  const ImportSite& site;
  base::Arch arch;
  const ImportText& text;
  std::string written;  ///< path of the manifest; empty: it is printed on stdout
};

/// Returns the exit code: done, or partly when the manifest does not compile yet.
int report_import(const Context& context, const Imported& imported);

}  // namespace kiln::cli
