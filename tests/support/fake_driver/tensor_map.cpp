// Tensor maps. cuda.h has the rules, at cuTensorMapEncodeTiled. Tests can read the maps that are written.
#include <cstring>

#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {
namespace {

constexpr unsigned kItemBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr int kTypes = sizeof kItemBytes / sizeof *kItemBytes, kFirstFloat = 6;
constexpr unsigned kSwizzleBytes[] = {0, 32, 64, 128};

bool valid_array(const kiln_fake_tensor_map& m) {
  const unsigned unit = m.interleave == 2 ? 32 : 16;
  if (m.address % unit != 0) return false;
  for (unsigned i = 0; i < m.rank; ++i) {
    if (m.dims[i] == 0 || m.dims[i] > 1ull << 32) return false;
    if (m.box[i] == 0 || m.box[i] > 256 || m.element_strides[i] == 0 || m.element_strides[i] > 8)
      return false;
    if (i + 1 < m.rank && (m.strides[i] % unit != 0 || m.strides[i] >= 1ull << 40)) return false;
  }
  return true;
}

bool valid_modes(const kiln_fake_tensor_map& m) {
  if (m.interleave > 2 || m.swizzle > 3 || m.l2 > 3 || m.fill > 1) return false;
  if (m.interleave != 0 && m.rank < 3) return false;
  if (m.interleave == 2 && m.swizzle != 1) return false;
  if (m.fill == 1 && m.data_type < kFirstFloat) return false;
  const unsigned row = m.box[0] * kItemBytes[m.data_type];
  return m.interleave != 0 || (row % 16 == 0 && (m.swizzle == 0 || row <= kSwizzleBytes[m.swizzle]));
}

}  // namespace

CUresult cuTensorMapEncodeTiled(void* map, int data_type, std::uint32_t rank, void* address,
                                const std::uint64_t* dims, const std::uint64_t* byte_strides,
                                const std::uint32_t* box, const std::uint32_t* element_strides,
                                int interleave, int swizzle, int l2_promotion, int fill) {
  KILN_FAKE_ENTER(cuTensorMapEncodeTiled);
  static_cast<void>(w);
  if (!map || reinterpret_cast<std::uintptr_t>(map) % 64 != 0 || !dims || !box || !element_strides)
    return CUDA_ERROR_INVALID_VALUE;
  if (data_type < 0 || data_type >= kTypes || rank < 1 || rank > 5 || (rank > 1 && !byte_strides))
    return CUDA_ERROR_INVALID_VALUE;
  kiln_fake_tensor_map out{};
  std::memcpy(out.magic, KILN_FAKE_TENSOR_MAP, sizeof out.magic);
  out.address = reinterpret_cast<std::uintptr_t>(address);
  out.data_type = static_cast<unsigned char>(data_type), out.rank = static_cast<unsigned char>(rank);
  for (unsigned i = 0; i < rank; ++i) {
    out.dims[i] = dims[i];
    if (box[i] > 256 || element_strides[i] > 8) return CUDA_ERROR_INVALID_VALUE;
    out.box[i] = static_cast<unsigned short>(box[i]);
    out.element_strides[i] = static_cast<unsigned char>(element_strides[i]);
    if (i + 1 < rank) out.strides[i] = byte_strides[i];
  }
  out.interleave = static_cast<unsigned char>(interleave), out.swizzle = static_cast<unsigned char>(swizzle);
  out.l2 = static_cast<unsigned char>(l2_promotion), out.fill = static_cast<unsigned char>(fill);
  if (!valid_array(out) || !valid_modes(out)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, 128);
  std::memcpy(map, &out, sizeof out);
  return CUDA_SUCCESS;
}

}  // namespace kiln::fake
