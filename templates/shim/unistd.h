// This <unistd.h> for NVRTC is empty, because what the system's header declares is host code.
#pragma once
