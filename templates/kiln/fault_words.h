// The words in which a kernel says that it could not do its work. The device writes them and the host reads
// them, so both compile this header.
#pragma once

namespace kiln {

// The variable kiln::device_fault of an image (kiln/fault.cuh). All words are 0 at first.
struct DeviceFaultWords {
  unsigned launches;  // launches that have failed; it only ever grows
  unsigned reason;    // FaultReason of the last of them, or a number of the template's own, from 256 on
  unsigned traps;     // set by the host: 1 lets such a launch trap
};

enum FaultReason : unsigned {
  FAULT_NONE = 0,
  FAULT_OTHER_KERNEL = 1,   // the work list was made for another kernel, or never
  FAULT_OTHER_WORKERS = 2,  // ... for another number of workers
  FAULT_OTHER_HEADS = 3,    // ... for another number of kv heads
  FAULT_OTHER_WINDOW = 4,   // ... for another window
  FAULT_NO_LIST = 5,        // the device cannot write a work list over what the buffer holds
  FAULT_LIMITS = 6,         // the lengths on the device are beyond the limits of the buffer
  FAULT_LENGTHS = 7,        // the lengths on the device are negative, shrink, or are more than there is
};

}  // namespace kiln
