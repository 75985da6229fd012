// Matrix products of a warpgroup on tensor cores (wgmma, sm_90a). The right operand lies in shared memory. The left
// operand lies there, too, or in registers.
//
// A product is D[64][N] += A[64][K] B[N][K], with K = 32 bytes of elements. Rows of operands lie along k, in tiles as TMA
// writes them: rows of SPAN bytes (32, 64 or 128) with a swizzle of SPAN bytes, at an address aligned to 8 * SPAN.
//
// Let w be the warp in its warpgroup, g = lane / 4 and t = lane % 4. A thread has for each j < N / 8
//
//     D [row][column]  d[4j] (16w + g, 8j + 2t)       d[4j + 1] (16w + g, 8j + 2t + 1)
//                      d[4j + 2] (16w + g + 8, 8j + 2t)   d[4j + 3] (16w + g + 8, 8j + 2t + 1)
//
// Products are asynchronous. A warpgroup calls wgmma_begin(), some products, and wgmma_commit(); all its threads call
// each. The results and the operands' memory are its own again after wgmma_wait().
#pragma once
#include "kiln/dtype.cuh"
#include "kiln/shared.cuh"

namespace kiln {

// Describes an operand at `tile`. Add wgmma_along() to go along k within the rows.
template <int SPAN>
__device__ __forceinline__ u64 wgmma_operand(const void* tile) {
  static_assert(SPAN == 32 || SPAN == 64 || SPAN == 128, "rows have 32, 64 or 128 bytes");
  constexpr u64 SWIZZLE = SPAN == 128 ? 1 : SPAN == 64 ? 2 : 3, EIGHT_ROWS = 8 * SPAN / 16;
  return SWIZZLE << 62 | EIGHT_ROWS << 32 | u64{1} << 16 | (shared_address(tile) & 0x3ffff) / 16;
}
__device__ __forceinline__ constexpr u64 wgmma_along(int bytes) { return static_cast<u64>(bytes / 16); }

__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all but the last PENDING groups of products have ended.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving accesses of results across this point. Call it after wgmma_wait().
template <int REGISTERS>
__device__ __forceinline__ void wgmma_results(f32 (&d)[REGISTERS]) {
#pragma unroll
  for (int i = 0; i < REGISTERS; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Returns the first of the two rows, of its warpgroup's 64, whose results this thread has. The other one is 8 rows below.
__device__ __forceinline__ int wgmma_row() {
  const int lane = threadIdx.x % 32;
  return threadIdx.x / 32 % 4 * 16 + lane / 4;
}

// Keeps the compiler from moving writes of these registers behind this point. Call it before wgmma_begin(), for sums that
// ordinary instructions have changed, and for a left operand in registers.
template <int REGISTERS>
__device__ __forceinline__ void wgmma_registers(f32 (&d)[REGISTERS]) {
  wgmma_results(d);
}
template <int STEPS>
__device__ __forceinline__ void wgmma_registers(u32 (&a)[STEPS][4]) {
#pragma unroll
  for (int i = 0; i < STEPS; ++i)
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// The text of one instruction for each N: its registers as placeholders, and as operands.
// clang-format off

#define KILN_R0 "%0, %1, %2, %3"
#define KILN_R1 KILN_R0 ", %4, %5, %6, %7"
#define KILN_R2 KILN_R1 ", %8, %9, %10, %11"
#define KILN_R3 KILN_R2 ", %12, %13, %14, %15"
#define KILN_R4 KILN_R3 ", %16, %17, %18, %19"
#define KILN_R5 KILN_R4 ", %20, %21, %22, %23"
#define KILN_R6 KILN_R5 ", %24, %25, %26, %27"
#define KILN_R7 KILN_R6 ", %28, %29, %30, %31"
#define KILN_R8 KILN_R7 ", %32, %33, %34, %35"
#define KILN_R9 KILN_R8 ", %36, %37, %38, %39"
#define KILN_R10 KILN_R9 ", %40, %41, %42, %43"
#define KILN_R11 KILN_R10 ", %44, %45, %46, %47"
#define KILN_R12 KILN_R11 ", %48, %49, %50, %51"
#define KILN_R13 KILN_R12 ", %52, %53, %54, %55"
#define KILN_R14 KILN_R13 ", %56, %57, %58, %59"
#define KILN_R15 KILN_R14 ", %60, %61, %62, %63"
#define KILN_R16 KILN_R15 ", %64, %65, %66, %67"
#define KILN_R17 KILN_R16 ", %68, %69, %70, %71"
#define KILN_R18 KILN_R17 ", %72, %73, %74, %75"
#define KILN_R19 KILN_R18 ", %76, %77, %78, %79"
#define KILN_R20 KILN_R19 ", %80, %81, %82, %83"
#define KILN_R21 KILN_R20 ", %84, %85, %86, %87"
#define KILN_R22 KILN_R21 ", %88, %89, %90, %91"
#define KILN_R23 KILN_R22 ", %92, %93, %94, %95"
#define KILN_R24 KILN_R23 ", %96, %97, %98, %99"
#define KILN_R25 KILN_R24 ", %100, %101, %102, %103"
#define KILN_R26 KILN_R25 ", %104, %105, %106, %107"
#define KILN_R27 KILN_R26 ", %108, %109, %110, %111"
#define KILN_R28 KILN_R27 ", %112, %113, %114, %115"
#define KILN_R29 KILN_R28 ", %116, %117, %118, %119"
#define KILN_R30 KILN_R29 ", %120, %121, %122, %123"
#define KILN_R31 KILN_R30 ", %124, %125, %126, %127"
#define KILN_D(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define KILN_D0 KILN_D(0)
#define KILN_D1 KILN_D0, KILN_D(4)
#define KILN_D2 KILN_D1, KILN_D(8)
#define KILN_D3 KILN_D2, KILN_D(12)
#define KILN_D4 KILN_D3, KILN_D(16)
#define KILN_D5 KILN_D4, KILN_D(20)
#define KILN_D6 KILN_D5, KILN_D(24)
#define KILN_D7 KILN_D6, KILN_D(28)
#define KILN_D8 KILN_D7, KILN_D(32)
#define KILN_D9 KILN_D8, KILN_D(36)
#define KILN_D10 KILN_D9, KILN_D(40)
#define KILN_D11 KILN_D10, KILN_D(44)
#define KILN_D12 KILN_D11, KILN_D(48)
#define KILN_D13 KILN_D12, KILN_D(52)
#define KILN_D14 KILN_D13, KILN_D(56)
#define KILN_D15 KILN_D14, KILN_D(60)
#define KILN_D16 KILN_D15, KILN_D(64)
#define KILN_D17 KILN_D16, KILN_D(68)
#define KILN_D18 KILN_D17, KILN_D(72)
#define KILN_D19 KILN_D18, KILN_D(76)
#define KILN_D20 KILN_D19, KILN_D(80)
#define KILN_D21 KILN_D20, KILN_D(84)
#define KILN_D22 KILN_D21, KILN_D(88)
#define KILN_D23 KILN_D22, KILN_D(92)
#define KILN_D24 KILN_D23, KILN_D(96)
#define KILN_D25 KILN_D24, KILN_D(100)
#define KILN_D26 KILN_D25, KILN_D(104)
#define KILN_D27 KILN_D26, KILN_D(108)
#define KILN_D28 KILN_D27, KILN_D(112)
#define KILN_D29 KILN_D28, KILN_D(116)
#define KILN_D30 KILN_D29, KILN_D(120)
#define KILN_D31 KILN_D30, KILN_D(124)
#define KILN_WGMMA(LAST, COLUMNS, A, B, P, KIND, TAIL)                                                   \
  if constexpr (N == COLUMNS)                                                                            \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" P ", 0; wgmma.mma_async.sync.aligned.m64n" #COLUMNS  \
                 KIND " {" KILN_R##LAST "}, %" A ", %" B ", p, 1, 1" TAIL "; }"                          \
                 : KILN_D##LAST                                                                          \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#define KILN_WGMMA_ALL(KIND, TAIL)                                                                       \
  KILN_WGMMA(0, 8, "4", "5", "6", KIND, TAIL)                                                            \
  KILN_WGMMA(1, 16, "8", "9", "10", KIND, TAIL)                                                          \
  KILN_WGMMA(2, 24, "12", "13", "14", KIND, TAIL)                                                        \
  KILN_WGMMA(3, 32, "16", "17", "18", KIND, TAIL)                                                        \
  KILN_WGMMA(4, 40, "20", "21", "22", KIND, TAIL)                                                        \
  KILN_WGMMA(5, 48, "24", "25", "26", KIND, TAIL)                                                        \
  KILN_WGMMA(6, 56, "28", "29", "30", KIND, TAIL)                                                        \
  KILN_WGMMA(7, 64, "32", "33", "34", KIND, TAIL)                                                        \
  KILN_WGMMA(8, 72, "36", "37", "38", KIND, TAIL)                                                        \
  KILN_WGMMA(9, 80, "40", "41", "42", KIND, TAIL)                                                        \
  KILN_WGMMA(10, 88, "44", "45", "46", KIND, TAIL)                                                       \
  KILN_WGMMA(11, 96, "48", "49", "50", KIND, TAIL)                                                       \
  KILN_WGMMA(12, 104, "52", "53", "54", KIND, TAIL)                                                      \
  KILN_WGMMA(13, 112, "56", "57", "58", KIND, TAIL)                                                      \
  KILN_WGMMA(14, 120, "60", "61", "62", KIND, TAIL)                                                      \
  KILN_WGMMA(15, 128, "64", "65", "66", KIND, TAIL)                                                      \
  KILN_WGMMA(16, 136, "68", "69", "70", KIND, TAIL)                                                      \
  KILN_WGMMA(17, 144, "72", "73", "74", KIND, TAIL)                                                      \
  KILN_WGMMA(18, 152, "76", "77", "78", KIND, TAIL)                                                      \
  KILN_WGMMA(19, 160, "80", "81", "82", KIND, TAIL)                                                      \
  KILN_WGMMA(20, 168, "84", "85", "86", KIND, TAIL)                                                      \
  KILN_WGMMA(21, 176, "88", "89", "90", KIND, TAIL)                                                      \
  KILN_WGMMA(22, 184, "92", "93", "94", KIND, TAIL)                                                      \
  KILN_WGMMA(23, 192, "96", "97", "98", KIND, TAIL)                                                      \
  KILN_WGMMA(24, 200, "100", "101", "102", KIND, TAIL)                                                   \
  KILN_WGMMA(25, 208, "104", "105", "106", KIND, TAIL)                                                   \
  KILN_WGMMA(26, 216, "108", "109", "110", KIND, TAIL)                                                   \
  KILN_WGMMA(27, 224, "112", "113", "114", KIND, TAIL)                                                   \
  KILN_WGMMA(28, 232, "116", "117", "118", KIND, TAIL)                                                   \
  KILN_WGMMA(29, 240, "120", "121", "122", KIND, TAIL)                                                   \
  KILN_WGMMA(30, 248, "124", "125", "126", KIND, TAIL)                                                   \
  KILN_WGMMA(31, 256, "128", "129", "130", KIND, TAIL)
// clang-format on

// d = a b, or d += a b if `add`. T is f16, bf16 or e4m3, and K is 16 elements of 2 bytes or 32 of e4m3. Sums of e4m3 keep
// about 14 bits: add them to other registers after 128 elements of k. With ALONG_N, `b` is an operand of
// wgmma_operand_along_n(); N is then 256, and T is f16 or bf16.
template <typename T, int N, bool ALONG_N = false>
__device__ __forceinline__ void wgmma(f32 (&d)[N / 2], u64 a, u64 b, bool add) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "N must be a multiple of 8 from 8 to 256");
  static_assert(same<T, f16> || same<T, bf16> || same<T, e4m3>, "T must be f16, bf16 or e4m3");
  static_assert(!ALONG_N || (N == 256 && sizeof(T) == 2), "only this N and these T along n");
  if constexpr (ALONG_N && same<T, bf16>) {
    KILN_WGMMA(31, 256, "128", "129", "130", "k16.f32.bf16.bf16", ", 0, 1")
  } else if constexpr (ALONG_N) {
    KILN_WGMMA(31, 256, "128", "129", "130", "k16.f32.f16.f16", ", 0, 1")
  } else if constexpr (same<T, bf16>) {
    KILN_WGMMA_ALL("k16.f32.bf16.bf16", ", 0, 0")
  } else if constexpr (same<T, f16>) {
    KILN_WGMMA_ALL("k16.f32.f16.f16", ", 0, 0")
  } else {
    KILN_WGMMA_ALL("k32.f32.e4m3.e4m3", "")
  }
}

// ---- products whose left operand lies in registers -----------------------------------------------------------------------

// Describes a right operand whose rows lie along n: [K][N] in panels of 64 columns, each as TMA writes a box of 64
// elements and K rows with a swizzle of 128. `panel` is the distance from a panel to the next in bytes. Add
// wgmma_along(128 * rows) to go along k.
__device__ __forceinline__ u64 wgmma_operand_along_n(const void* tile, u32 panel) {
  return u64{1} << 62 | u64{1024 / 16} << 32 | static_cast<u64>(panel / 16) << 16 |
         (shared_address(tile) & 0x3ffff) / 16;
}

// clang-format off
#define KILN_WGMMA_REGISTERS(LAST, COLUMNS, A0, A1, A2, A3, B, P, KIND, ALONG_N)                             \
  if constexpr (N == COLUMNS)                                                                                \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" P ", 0; wgmma.mma_async.sync.aligned.m64n" #COLUMNS      \
                 KIND " {" KILN_R##LAST "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B                       \
                 ", p, 1, 1, " ALONG_N "; }"                                                                 \
                 : KILN_D##LAST                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#define KILN_WGMMA_REGISTERS_ALL(KIND, ALONG_N)                                              \
  KILN_WGMMA_REGISTERS(7, 64, "32", "33", "34", "35", "36", "37", KIND, ALONG_N)             \
  KILN_WGMMA_REGISTERS(15, 128, "64", "65", "66", "67", "68", "69", KIND, ALONG_N)           \
  KILN_WGMMA_REGISTERS(23, 192, "96", "97", "98", "99", "100", "101", KIND, ALONG_N)         \
  KILN_WGMMA_REGISTERS(31, 256, "128", "129", "130", "131", "132", "133", KIND, ALONG_N)
// clang-format on

// d = a b, or d += a b if `add`, for 16 elements of k. `a` has the thread's elements of the left operand, as mma() of
// kiln/mma.cuh lays them out for the 16 rows of its warp. `b` is an operand of wgmma_operand_along_n(), or with ALONG_N =
// false of wgmma_operand(). T is f16 or bf16.
template <typename T, int N, bool ALONG_N = true>
__device__ __forceinline__ void wgmma(f32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool add) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256, "N must be 64, 128, 192 or 256");
  if constexpr (same<T, bf16> && ALONG_N) {
    KILN_WGMMA_REGISTERS_ALL("k16.f32.bf16.bf16", "1")
  } else if constexpr (same<T, bf16>) {
    KILN_WGMMA_REGISTERS_ALL("k16.f32.bf16.bf16", "0")
  } else if constexpr (ALONG_N) {
    KILN_WGMMA_REGISTERS_ALL("k16.f32.f16.f16", "1")
  } else {
    KILN_WGMMA_REGISTERS_ALL("k16.f32.f16.f16", "0")
  }
}

}  // namespace kiln
