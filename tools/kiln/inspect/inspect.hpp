// The commands that show single entries: ls, show, diff.
#pragma once

#include "tools/kiln/inspect/diff.hpp"
#include "tools/kiln/inspect/ls.hpp"
#include "tools/kiln/inspect/show.hpp"
