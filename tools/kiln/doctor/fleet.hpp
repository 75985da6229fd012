// The fleet's tier: its settings, and whether each server answers and is set up for it.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// The fleet's tier, if one is configured.
void probe_remote(Context& context, Findings& out);
/// Without passwords.
std::string shown_value(const runtime::Setting& setting);

}  // namespace kiln::cli
