// Writes templates from memory as files beside a trace.
#pragma once

#include <string>

#include "manifest/catalog.hpp"

namespace kiln::runtime {

/// The directory for the templates from memory of a trace. It can stand on the template path.
std::string templates_beside(const std::string& record);

/// Writes `in` as NAME.toml and NAME.cu (and NAME.reference.cu) into `directory`. Each file is written
/// atomically, and the manifest last. Returns false when another template of that name is there already; the
/// first one stays. `work_lists`: the kinds that the manifest was read with. Throws Error(io). REQUIRES:
/// nobody else dumps into `directory` meanwhile.
bool dump_template(const std::string& directory, const std::string& name, const source::MemoryTemplate& in,
                   source::WorkListKinds work_lists);

}  // namespace kiln::runtime
