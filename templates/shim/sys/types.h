// <sys/types.h> for NVRTC: glibc's short names of the unsigned integers, which its <stdlib.h> brings too.
#pragma once
#include <stdint.h>

using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
