// [compile], and the checks of file names.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_compile(Draft& draft, const TableReader& root);
/// Fails for a name that cannot stand between the quotes or brackets of an include, and for an absolute name.
void check_header(const TableReader& reader, std::string_view key, const std::string& name);
/// The file name under `key`; fails unless it stays inside the manifest's directory.
std::string inner_path(const TableReader& reader, std::string_view key);

}  // namespace kiln::source
