// An empty header, in the place of those that [compile] empty names.
#pragma once
