// Says to the host that a launch could not do its work. A manifest lets the service find the words:
//
//   [[global]]
//   name = "device_fault"
//   symbol = "kiln::device_fault"
//
// kiln_service_device_faults() then names the kernel and the reason. The words are a part of the image, so they need
// no argument, and a captured graph may contain the launch.
#pragma once
#include "kiln/fault_words.h"

namespace kiln {

__device__ DeviceFaultWords device_fault;

// One thread of the launch calls it.
__device__ __forceinline__ void report_fault(unsigned reason) {
  device_fault.reason = reason;
  __threadfence();
  atomicAdd(&device_fault.launches, 1u);
  if (device_fault.traps != 0) asm volatile("trap;");
}

}  // namespace kiln
