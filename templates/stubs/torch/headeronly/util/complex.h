#pragma once
#include <torch/stub.h>

namespace torch {
namespace headeronly {
template <class T>
using complex = c10::complex<T>;
}  // namespace headeronly
}  // namespace torch
