/* The fake driver behind a gate: libkiln_gated_cuda.so for KILN_LIBCUDA. It hands out the entry points of
 * libkiln_fake_cuda.so; while the gate is shut, cuLibraryLoadData does not return, as when a kernel that
 * never ends holds the driver. Both functions are thread-safe. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Nonzero: loads that begin from now on wait until this is called with zero. */
void kiln_gate_shut(int on);
/* How many loads wait now. */
int kiln_gate_waiting(void);

#ifdef __cplusplus
}
#endif
