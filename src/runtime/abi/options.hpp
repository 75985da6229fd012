// The options of a service, from C.
#pragma once

#include "kiln/kiln.h"
#include "runtime/config/config.hpp"

namespace kiln::runtime::c_api {

/// Throws Error(invalid_argument) for a mode or an adoption that is none of the constants.
Options options_of(const kiln_options& in);

}  // namespace kiln::runtime::c_api
