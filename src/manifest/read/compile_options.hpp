// [compile], and the names of files.
#pragma once

#include "manifest/read/draft.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

void read_compile(Draft& draft, const TableReader& root);
/// Fails for what cannot stand between the quotes or brackets of an include, and for absolute names.
void check_header(const TableReader& reader, std::string_view key, const std::string& name);
/// "a.b" of a file name that stays inside the manifest's directory; fails otherwise.
std::string inner_path(const TableReader& reader, std::string_view key);

}  // namespace kiln::source
