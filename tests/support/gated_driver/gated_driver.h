/* The fake driver behind a gate: libkiln_gated_cuda.so for KILN_LIBCUDA. It hands out the entry points of
 * libkiln_fake_cuda.so. While the gate is shut, cuLibraryLoadData does not return: a real driver behaves so
 * while a kernel that never ends holds it. Both functions are thread-safe. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Nonzero shuts the gate: loads that begin from now on wait. Zero opens it. */
void kiln_gate_shut(int on);
/* Number of loads that wait now. */
int kiln_gate_waiting(void);

#ifdef __cplusplus
}
#endif
