// The final message of `kiln import`.
#pragma once

#include "base/arch.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/import/manifest.hpp"
#include "tools/kiln/import/place.hpp"
#include "tools/kiln/import/rounds.hpp"

namespace kiln::cli {

struct Imported {
  const ImportDraft& draft;
  const Proof& proof;
  const ImportSite& site;
  base::Arch arch;
  const ImportText& text;
  bool verbose;         ///< shows all errors
  std::string written;  ///< path of the manifest; empty: it is printed on stdout
};

/// Sentences that ask for values that only the user can know: "T must be a type with members N: give it as T=V".
std::vector<std::string> asks_of(const ImportDraft& draft);

/// Returns the exit code: done, or partly when the manifest does not compile yet.
int report_import(const Context& context, const Imported& imported);

}  // namespace kiln::cli
