// This <inttypes.h> for NVRTC defines the printf formats for the integers of <stdint.h>.
#pragma once
#include <stdint.h>

#define PRId32 "d"
#define PRIi32 "i"
#define PRIu32 "u"
#define PRIx32 "x"
#define PRId64 "lld"
#define PRIi64 "lli"
#define PRIu64 "llu"
#define PRIx64 "llx"
#define PRIdPTR "lld"
#define PRIuPTR "llu"
#define PRIxPTR "llx"
