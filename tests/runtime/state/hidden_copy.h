/* libkiln_hidden_copy.so: a library that links kiln statically and exports none of kiln's symbols. */
#pragma once

#include "kiln/kiln.h"

extern "C" {
/* Compiles the template with N = n in a service of that copy, and returns the status. */
__attribute__((visibility("default"))) kiln_status kiln_hidden_copy_compile(const char* cache_dir,
                                                                            const char* cuda_home,
                                                                            const char* manifest,
                                                                            const char* source, int n);
__attribute__((visibility("default"))) void kiln_hidden_copy_seal_process(void);
}
