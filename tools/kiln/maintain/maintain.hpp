// The commands that make a cache smaller: gc, clear.
#pragma once

#include "tools/kiln/maintain/clear.hpp"
#include "tools/kiln/maintain/gc.hpp"
