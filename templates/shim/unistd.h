// <unistd.h> for NVRTC: nothing; what it declares is host code.
#pragma once
