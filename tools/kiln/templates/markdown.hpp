// Templates as a page of Markdown: docs/templates.md is what this writes for the shipped ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "manifest/catalog.hpp"

namespace kiln::cli {

/// A head, a table of contents and a section for each. The same for the same manifests, wherever they lie.
std::string markdown_page(const std::vector<std::shared_ptr<const source::Template>>& templates);
/// One template under a heading of the second level.
std::string markdown_section(const source::Template& origin);

}  // namespace kiln::cli
