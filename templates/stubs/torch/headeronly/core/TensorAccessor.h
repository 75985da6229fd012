// The accessors of torch/stub.h, under the names that libraries with PyTorch's stable interface use.
#pragma once
#include <torch/stub.h>

namespace torch {
namespace headeronly {

using at::DefaultPtrTraits;
using at::RestrictPtrTraits;

template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
using TensorAccessor = at::TensorAccessor<T, N, Traits, Index>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
using GenericPackedTensorAccessor = at::GenericPackedTensorAccessor<T, N, Traits, Index>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
using HeaderOnlyTensorAccessor = at::TensorAccessor<T, N, Traits, Index>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
using HeaderOnlyGenericPackedTensorAccessor = at::GenericPackedTensorAccessor<T, N, Traits, Index>;

}  // namespace headeronly
}  // namespace torch
