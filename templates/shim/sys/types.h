// This <sys/types.h> for NVRTC has glibc's short names of the unsigned integers.
// The <stdlib.h> of glibc includes them too.
#pragma once
#include <stdint.h>

using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
