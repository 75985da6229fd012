// Loading images. kiln's own reader reads the cubins, so that argument sizes and limits are the image's.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "kiln/error.hpp"
#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {
namespace {

/// The size of the ELF image at `code`. cuLibraryLoadData is not told a size either, and trusts the headers.
std::size_t extent_of(const char* code) {
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof header);
  std::uint64_t end = std::max<std::uint64_t>(
      sizeof header, header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  end = std::max<std::uint64_t>(end, header.e_phoff + std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, code + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL)
      end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

bool runs_on(int sm, int arch) { return sm / 10 == arch / 10 && sm % 10 <= arch % 10; }

}  // namespace

CUresult loading_allowed(World& w) {
  if (!w.strict_capture || capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool broken = false;
  for (auto& [handle, stream] : w.streams) {
    if (!stream->capturing || stream->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    stream->invalidated = broken = true;
  }
  return broken ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  KILN_FAKE_ENTER(cuLibraryLoadData);
  if (!out || !code) return CUDA_ERROR_INVALID_VALUE;
  if (const auto refused = loading_allowed(w)) return refused;
  if (std::memcmp(code, ELFMAG, SELFMAG) != 0) return CUDA_ERROR_INVALID_IMAGE;
  auto library = std::make_unique<CUlib_st>();
  try {
    library->facts =
        read_cubin({static_cast<const std::byte*>(code), extent_of(static_cast<const char*>(code))});
  } catch (const Error&) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (!runs_on(library->facts.sm, w.arch)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (const CubinKernel& facts : library->facts.kernels) {
    auto kernel = std::make_unique<CUkern_st>(CUkern_st{library.get(), &facts, {}});
    library->kernels[facts.name] = kernel.get();
    w.kernels.emplace(kernel.get(), std::move(kernel));
  }
  *out = library.get();
  w.libraries.emplace(library.get(), std::move(library));
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  KILN_FAKE_ENTER(cuLibraryUnload);
  const auto it = w.libraries.find(library);
  if (it == w.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, kernel] : library->kernels) {
    for (const auto& [context, function] : kernel->functions) w.functions.erase(function);
    w.kernels.erase(kernel);
  }
  for (const auto& [name, address] : library->globals) cuMemFree(address);
  w.libraries.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  KILN_FAKE_ENTER(cuLibraryGetGlobal);
  if (!w.libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto bad = context_state(w)) return bad;
  const CubinVariable* variable = library->facts.variable(name);
  if (!variable) return CUDA_ERROR_NOT_FOUND;
  CUdeviceptr& place = library->globals[{current_context(), name}];
  if (!place) {
    if (const auto failed = cuMemAlloc(&place, variable->bytes)) return failed;
    std::memset(reinterpret_cast<void*>(place), 0, variable->bytes);
  }
  *address = place;
  *bytes = variable->bytes;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  KILN_FAKE_ENTER(cuLibraryGetKernel);
  if (!w.libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  const auto it = library->kernels.find(name);
  if (it == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *kernel = it->second;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  KILN_FAKE_ENTER(cuKernelGetFunction);
  if (!w.kernels.count(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto bad = context_state(w)) return bad;
  if (const auto refused = loading_allowed(w)) return refused;
  CUfunction& function = kernel->functions[current_context()];
  if (!function) {
    auto made = std::make_unique<CUfunc_st>();
    made->kernel = kernel;
    made->context = current_context();
    made->max_dynamic_shared = std::max(0, (48 << 10) - static_cast<int>(kernel->facts->shared_bytes));
    function = made.get();
    w.functions.emplace(function, std::move(made));
  }
  *out = function;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  KILN_FAKE_ENTER(cuFuncLoad);
  if (!w.functions.count(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (!function->loaded)
    if (const auto refused = loading_allowed(w)) return refused;
  function->loaded = true;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  KILN_FAKE_ENTER(cuFuncGetAttribute);
  if (!w.functions.count(function)) return CUDA_ERROR_INVALID_HANDLE;
  const CubinKernel& facts = *function->kernel->facts;
  switch (attribute) {
    case 0:
      *value = facts.max_threads ? static_cast<int>(facts.max_threads) : 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(facts.shared_bytes);
      return CUDA_SUCCESS;
    case 3:
      *value = static_cast<int>(facts.stack_bytes);
      return CUDA_SUCCESS;  // LOCAL_SIZE_BYTES
    case 4:
      *value = static_cast<int>(facts.registers);
      return CUDA_SUCCESS;  // NUM_REGS
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = function->non_portable_cluster;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  KILN_FAKE_ENTER(cuFuncSetAttribute);
  if (!w.functions.count(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    function->non_portable_cluster = value != 0;
    return CUDA_SUCCESS;
  }
  const int room = (227 << 10) - static_cast<int>(function->kernel->facts->shared_bytes);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > room)
    return CUDA_ERROR_INVALID_VALUE;
  function->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
  KILN_FAKE_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (!w.functions.count(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (threads < 1 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const CubinKernel& facts = *function->kernel->facts;
  const int warps = (threads + 31) / 32;
  const int registers = std::max(1, static_cast<int>(facts.registers)) * 32 * warps;
  const std::size_t shared = facts.shared_bytes + dynamic_shared + 1024;
  *blocks = std::min({32, 64 / warps, 65536 / registers, static_cast<int>((228u << 10) / shared)});
  return CUDA_SUCCESS;
}

}  // namespace kiln::fake
