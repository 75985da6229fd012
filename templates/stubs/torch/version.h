// The version of PyTorch whose layouts the stubs have. A template for an older PyTorch names that version with
// `define`.
#pragma once

#ifndef TORCH_VERSION_MAJOR
#define TORCH_VERSION_MAJOR 2
#endif
#ifndef TORCH_VERSION_MINOR
#define TORCH_VERSION_MINOR 10
#endif
#ifndef TORCH_VERSION_PATCH
#define TORCH_VERSION_PATCH 0
#endif
