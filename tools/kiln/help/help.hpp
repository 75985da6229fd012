// The commands that write documentation (man, completion), and the hidden one that completes a word.
#pragma once

#include "tools/kiln/help/complete.hpp"
#include "tools/kiln/help/completion.hpp"
#include "tools/kiln/help/man.hpp"
