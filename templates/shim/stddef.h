// This is <stddef.h> for NVRTC, where size_t and ptrdiff_t are built in.
#pragma once

#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) ((::size_t)__INTADDR__(&(((type*)0)->member)))  // a constant expression
#endif

// Its alignment is 16, the alignment of the widest scalar on the host.
struct alignas(16) max_align_t {
  long long integer;
  double floating;
};
