// Specialisations as a user would write them: parameters with their default value are left out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kiln/specialization.hpp"
#include "manifest/catalog.hpp"
#include "runtime/config/config.hpp"
#include "tools/kiln/cli/catalog.hpp"

namespace kiln::cli {

class Spelling {
 public:
  explicit Spelling(const runtime::Config& config) : catalog_(catalog_of(config.template_directories())) {}

  /// "T=bf16 H=4096". The parameters left out have the defaults of today's template. Writes all parameters
  /// when the template is gone or no longer matches.
  std::string shortest(const std::string& template_name, const std::vector<Parameter>& parameters,
                       const std::string& arch);

 private:
  source::Catalog catalog_;
  std::map<std::string, std::shared_ptr<const source::Template>, std::less<>> known_;
};

}  // namespace kiln::cli
