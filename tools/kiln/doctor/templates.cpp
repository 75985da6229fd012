// Probes of the template path: whether every manifest on it parses.
#include "tools/kiln/doctor/templates.hpp"

#include <sys/stat.h>

#include "base/text.hpp"
#include "tools/kiln/cli/catalog.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

void probe_templates(Context& context, Findings& out) {
  using Status = Finding::Status;
  // Uses its own catalog, because the service's catalog holds the template of the compile probe.
  source::Catalog catalog = catalog_of(context.service().config().template_directories());
  for (const std::string& directory : catalog.directories()) {
    struct stat st {};
    if (::stat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
    out.push_back({"templates", Status::warning, "'" + directory + "' is no directory",
                   "correct KILN_TEMPLATE_PATH or --template-path"});
  }
  const std::vector<std::string> names = catalog.names();
  std::size_t good = 0;
  for (const std::string& name : names) {
    try {
      const auto found = catalog.open(name);
      found->kernel.read();
      if (found->manifest.reference) found->reference.read();
      ++good;
    } catch (const Error& error) {
      out.push_back({"templates", Status::error, error.what()});
    }
  }
  if (names.empty()) {
    out.push_back(
        {"templates", Status::warning,
         "no template was found in " +
             (catalog.directories().empty() ? "any directory" : base::join(catalog.directories(), ", ")),
         context.service().config().about_templates()});
  } else if (good > 0) {
    out.push_back({"templates", Status::ok,
                   counted(good, "template") + " in " + base::join(catalog.directories(), ", ")});
  }
}

}  // namespace kiln::cli
