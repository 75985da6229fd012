/* A library that has linked kiln statically and shows nothing of it: libkiln_hidden_copy.so. */
#pragma once

#include "kiln/kiln.h"

extern "C" {
/* The status of compiling the template's `n` in a service of that copy. */
__attribute__((visibility("default"))) kiln_status kiln_hidden_copy_compile(const char* cache_dir,
                                                                            const char* cuda_home,
                                                                            const char* manifest,
                                                                            const char* source, int n);
__attribute__((visibility("default"))) void kiln_hidden_copy_seal_process(void);
}
