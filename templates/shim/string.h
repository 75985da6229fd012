// This is <string.h> for NVRTC, where memcpy and memset are built in. The other functions are loops over
// bytes, because existing sources call them on small objects only.
#pragma once
#include <stddef.h>

__host__ __device__ inline void* memmove(void* to, const void* from, size_t bytes) {
  unsigned char* t = static_cast<unsigned char*>(to);
  const unsigned char* f = static_cast<const unsigned char*>(from);
  if (t < f) {
    for (size_t i = 0; i < bytes; ++i) t[i] = f[i];
  } else {
    for (size_t i = bytes; i-- > 0;) t[i] = f[i];
  }
  return to;
}
__host__ __device__ inline int memcmp(const void* a, const void* b, size_t bytes) {
  const unsigned char* x = static_cast<const unsigned char*>(a);
  const unsigned char* y = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < bytes; ++i) {
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  }
  return 0;
}
__host__ __device__ inline size_t strlen(const char* text) {
  size_t n = 0;
  while (text[n] != '\0') ++n;
  return n;
}
__host__ __device__ inline int strcmp(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return int(static_cast<unsigned char>(*a)) - int(static_cast<unsigned char>(*b));
}
