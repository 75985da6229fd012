"""The conversions of kiln/fp8.cuh, which older GPUs use, against this GPU's instructions:
every float32, every code.
"""

import torch
from harness import add_template, kernel

MANIFEST = """
format = 1
[template]
name = "test_fp8_conversions"
source = "test_fp8_conversions.cu"
instantiate = "test::compare"
[compile]
minimal = true
[[arg]]
name = "wrong"
type = "ptr<i32>"
access = "readwrite"
shape = ["4"]
[launch]
grid = ["65536"]
block = ["256"]
"""
SOURCE = """
#include "kiln/dtype.cuh"
namespace test {
using namespace kiln;

__global__ void compare(i32* wrong) {
  const u32 thread = blockIdx.x * 256 + threadIdx.x;
  int e4m3s = 0, e5m2s = 0;
  for (u32 i = 0; i < 256; ++i) {  // 2^24 threads: all 2^32 patterns
    const u32 bits = thread | i << 24;
    const float f = __uint_as_float(bits);
    e4m3s += fp8::e4m3_from_float_bits(bits) != from_float<e4m3>(f).bits;
    e5m2s += fp8::e5m2_from_float_bits(bits) != from_float<e5m2>(f).bits;
  }
  if (e4m3s) atomicAdd(wrong, e4m3s);
  if (e5m2s) atomicAdd(wrong + 1, e5m2s);
  if (thread < 256) {
    const u8 code = static_cast<u8>(thread);
    const float here = to_float(e4m3{code}), integers = to_float(f16{fp8::e4m3_to_half_bits_over_256(code)}) * 256.0f;
    if (here != integers && (here == here || integers == integers)) atomicAdd(wrong + 2, 1);
    if ((here == here) != ((code & 0x7f) != 0x7f)) atomicAdd(wrong + 3, 1);
  }
}
}  // namespace test
"""


def test_integers_convert_as_the_instructions_do():
    add_template(MANIFEST, SOURCE)
    wrong = torch.zeros(4, dtype=torch.int32, device="cuda")
    kernel("test_fp8_conversions")(wrong)
    assert wrong.tolist() == [0, 0, 0, 0], (
        f"of 2^32 floats {wrong[0]} to e4m3 and {wrong[1]} to e5m2 differ; of 256 codes {wrong[2]}, NaN {wrong[3]}"
    )
