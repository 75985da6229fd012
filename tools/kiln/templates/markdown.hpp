// Templates as a Markdown page. docs/reference/templates.md is this page for the shipped templates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "manifest/catalog.hpp"

namespace kiln::cli {

/// A head, a table of contents and a section for each template. Does not depend on where the manifests lie.
std::string markdown_page(const std::vector<std::shared_ptr<const source::Template>>& templates);
/// One template under a second-level heading.
std::string markdown_section(const source::Template& origin);

}  // namespace kiln::cli
