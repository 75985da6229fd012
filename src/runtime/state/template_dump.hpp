// Templates from memory as files beside a record.
#pragma once

#include <string>

#include "manifest/catalog.hpp"

namespace kiln::runtime {

/// Where the templates from memory of a record lie: a directory for the template path.
std::string templates_beside(const std::string& record);

/// Writes `in` as NAME.toml and NAME.cu (and NAME.reference.cu) into `directory`, the manifest last and each
/// atomically. False when another template of the name is there already: the first one stays. `work_lists`: those that the
/// manifest was read with. Throws Error(io). REQUIRES: nobody else dumps into it meanwhile.
bool dump_template(const std::string& directory, const std::string& name, const source::MemoryTemplate& in,
                   source::WorkListKinds work_lists);

}  // namespace kiln::runtime
