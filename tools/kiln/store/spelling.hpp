// Specialisations as a person would have written them: parameters that have their default value are left out.
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

  /// "T=bf16 H=4096": what is left out follows from the template as it is today. Everything, when the
  /// template is not there or says something else by now.
  std::string shortest(const std::string& template_name, const std::vector<Parameter>& parameters,
                       const std::string& arch);

 private:
  source::Catalog catalog_;
  std::map<std::string, std::shared_ptr<const source::Template>, std::less<>> known_;
};

}  // namespace kiln::cli
