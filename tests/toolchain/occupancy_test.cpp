// Blocks on an SM, compared with known values and, where it is installed, with the vendor's calculation.
#include "toolchain/occupancy.hpp"

#include <gtest/gtest.h>

#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#endif

namespace kiln::toolchain {
namespace {

using base::Arch;
using Limit = Occupancy::Limit;

TEST(Occupancy, OfKnownKernels) {
  const auto full = occupancy(Arch{90}, 32, 0, 256);  // 64 warps of 1,024 registers: all registers
  ASSERT_TRUE(full);
  EXPECT_EQ(full->blocks, 8);
  EXPECT_EQ(full->warps, 64);
  EXPECT_DOUBLE_EQ(full->fraction(), 1);
  const auto registers = occupancy(Arch{90}, 168, 0, 384);  // FlashAttention's kernel: one block
  EXPECT_EQ(registers->blocks, 1);
  EXPECT_EQ(registers->limit, Limit::registers);
  const auto shared = occupancy(Arch{80}, 32, 100 << 10, 128);
  EXPECT_EQ(shared->blocks, 1);
  EXPECT_EQ(shared->limit, Limit::shared);
  const auto blocks = occupancy(Arch{86}, 16, 0, 32);
  EXPECT_EQ(blocks->blocks, 16);
  EXPECT_EQ(blocks->limit, Limit::blocks);
}

TEST(Occupancy, WhatCannotBeLaunchedIsNone) {
  EXPECT_EQ(occupancy(Arch{90}, 32, (227 << 10) + 1, 256)->blocks, 0);
  EXPECT_EQ(occupancy(Arch{90}, 255, 0, 1024)->blocks, 0);
  EXPECT_EQ(occupancy(Arch{90}, 16, 0, 2048)->blocks, 0);
}

TEST(Occupancy, ReservedSharedMemoryCountsOncePerBlock) {
  EXPECT_EQ(occupancy(Arch{90}, 32, 113 << 10, 128)->blocks, 2);
  EXPECT_EQ(occupancy(Arch{90}, 32, (113 << 10) + 1, 128)->blocks, 1);
  EXPECT_EQ(occupancy(Arch{75}, 32, 32 << 10, 128)->blocks, 2) << "none is reserved before 8.0";
}

TEST(Occupancy, OfAnUnknownArchOrNoThreadsIsNotSaid) {
  EXPECT_FALSE(occupancy(Arch{60}, 32, 0, 256));
  EXPECT_FALSE(occupancy(Arch{90}, 32, 0, 0));
}

#ifdef __CUDA_OCC_MAJOR__
TEST(Occupancy, IsWhatTheVendorsHeaderSays) {
  int compared = 0;
  for (const int arch : {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121}) {
    const base::SmLimits sm = *base::sm_limits(Arch{arch});
    cudaOccDeviceProp device;
    device.computeMajor = arch / 10, device.computeMinor = arch % 10;
    device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = sm.warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32, device.numSms = 1;
    device.sharedMemPerBlock = 48 << 10, device.sharedMemPerMultiprocessor = sm.shared_bytes;
    device.sharedMemPerBlockOptin = sm.shared_opt_in, device.reservedSharedMemPerBlock = sm.shared_reserved;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    for (int registers = 8; registers <= 255; registers += 13) {
      for (const int threads : {1, 32, 96, 128, 160, 256, 384, 512, 1000, 1024}) {
        for (const int shared : {0, 32, 1000, 9000, 40'000, 60'000, 90'000, 101'376, 150'000, 232'448}) {
          cudaOccFuncAttributes kernel;
          kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers, kernel.sharedSizeBytes = 0;
          kernel.partitionedGCConfig = PARTITIONED_GC_OFF, kernel.numBlockBarriers = 0;
          kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(shared);
          cudaOccResult theirs{};
          if (cudaOccMaxActiveBlocksPerMultiprocessor(&theirs, &device, &kernel, &state, threads,
                                                      static_cast<size_t>(shared)) != CUDA_OCC_SUCCESS)
            continue;
          const auto ours =
              occupancy(Arch{arch}, static_cast<std::uint32_t>(registers), static_cast<std::uint64_t>(shared),
                        static_cast<std::uint32_t>(threads));
          ++compared;
          ASSERT_EQ(ours->blocks, theirs.activeBlocksPerMultiprocessor)
              << "sm_" << arch << ' ' << registers << " registers, " << threads << " threads, " << shared
              << " bytes";
        }
      }
    }
  }
  EXPECT_GT(compared, 10'000);
}
#endif

}  // namespace
}  // namespace kiln::toolchain
