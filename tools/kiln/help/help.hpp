// The commands that write documentation: man, completion.
#pragma once

#include "tools/kiln/help/completion.hpp"
#include "tools/kiln/help/man.hpp"
