#pragma once
#include <torch/stub.h>

namespace torch {
namespace stable {

/// Structs of the host that a text keeps may have such members.
class Tensor {
  void *impl_, *count_;
};

}  // namespace stable
}  // namespace torch
