// Numbers and layouts of the attributes are not documented. They were found in cubins of NVRTC 12.0 to 13.0
// (sm_52 to sm_121), and agree with cuobjdump --dump-elf and --dump-resource-usage.
#include "toolchain/cubin.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "kiln/error.hpp"
#include "toolchain/elf.hpp"

namespace kiln::toolchain {
namespace {

constexpr std::uint8_t kStoCudaEntry = 0x10;  // st_other of a __global__ function
/// From sm_90 on, each block's shared memory begins with this many bytes for the system. The section's size
/// includes them. The static shared memory of cuFuncGetAttribute and ptxas -v does not.
constexpr std::uint64_t kReservedSharedBytes = 1024;

enum Attribute : std::uint8_t {
  MAX_THREADS = 0x05,      // x, y, z
  REQNTID = 0x10,          // x, y, z
  FRAME_SIZE = 0x11,       // symbol, bytes
  MIN_STACK_SIZE = 0x12,   // symbol, bytes, callees included
  KPARAM_INFO = 0x17,      // index, ordinal:16, offset:16, pointee:18 | size:14
  REGCOUNT = 0x2f,         // symbol, registers
  CTA_PER_CLUSTER = 0x3d,  // x, y, z
  KPARAM_INFO_V2 = 0x45,   // index, ordinal:16, offset:16, size:16, pointee:16
  ANNOTATIONS = 0x55,      // pairs of kind, offset into .text.<kernel>; kind 1 is a spill or a refill
};

[[noreturn]] void damaged(std::string_view what) {
  throw Error(Errc::io, "damaged cubin: " + std::string(what));
}

template <class T>
T at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  if (offset > bytes.size() || sizeof value > bytes.size() - offset) damaged("an attribute ends early");
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Calls each(attribute, payload) for every record of a .nv.info section that has a sized payload. A record
/// is format:8, attribute:8, then 16 bits. The 16 bits are a value (formats 1 to 3), or the size of the
/// payload that follows (format 4).
template <class Each>
void for_each_attribute(std::span<const std::byte> info, Each&& each) {
  while (!info.empty()) {
    const auto format = at<std::uint8_t>(info, 0), attribute = at<std::uint8_t>(info, 1);
    const auto size = at<std::uint16_t>(info, 2);
    info = info.subspan(4);
    if (format < 1 || format > 4) damaged("unknown attribute format");
    if (format != 4) continue;
    if (size > info.size()) damaged("an attribute ends early");
    each(attribute, info.first(size));
    info = info.subspan(size);
  }
}

std::array<std::uint32_t, 3> triple(std::span<const std::byte> payload) {
  return {at<std::uint32_t>(payload, 0), at<std::uint32_t>(payload, 4), at<std::uint32_t>(payload, 8)};
}

/// Adds the bytes that one spilling instruction moves. An instruction of SASS since sm_70 has 128 bits.
/// Bits 0-11 are the opcode: store or load, local or, with shared-memory spilling, shared. Bits 73-75
/// are the operand's width.
void count_spill(CubinKernel& kernel, std::span<const std::byte> text, std::uint32_t offset) {
  static constexpr std::uint32_t kWidths[] = {1, 1, 2, 2, 4, 8, 16, 0};
  if (offset > text.size() || text.size() - offset < 16) damaged("a spill lies outside the code");
  const auto opcode = at<std::uint16_t>(text, offset) & 0xfff;
  const auto bytes = kWidths[at<std::uint16_t>(text, offset + 9) >> 1 & 7];
  if (opcode == 0x387 || opcode == 0x388) kernel.spill_store_bytes += bytes;
  if (opcode == 0x983 || opcode == 0x984) kernel.spill_load_bytes += bytes;
}

void read_kernel_attributes(CubinKernel& kernel, std::span<const std::byte> info,
                            std::span<const std::byte> text) {
  for_each_attribute(info, [&](std::uint8_t attribute, std::span<const std::byte> payload) {
    switch (attribute) {
      case KPARAM_INFO:
      case KPARAM_INFO_V2: {
        const std::uint32_t size =
            attribute == KPARAM_INFO ? at<std::uint32_t>(payload, 8) >> 18 : at<std::uint16_t>(payload, 8);
        kernel.arguments.push_back({at<std::uint16_t>(payload, 4), at<std::uint16_t>(payload, 6), size});
        break;
      }
      case MAX_THREADS: {
        const auto [x, y, z] = triple(payload);
        if (x > 1024 || y > 1024 || z > 1024) damaged("more than 1024 threads");
        kernel.max_threads = x * y * z;
        break;
      }
      case REQNTID:
        kernel.required_block = triple(payload);
        break;
      case CTA_PER_CLUSTER:
        kernel.cluster = triple(payload);
        break;
      case ANNOTATIONS:
        for (std::size_t i = 0; i + 8 <= payload.size(); i += 8)
          if (at<std::uint32_t>(payload, i) == 1)
            count_spill(kernel, text, at<std::uint32_t>(payload, i + 4));
        break;
    }
  });
  auto& arguments = kernel.arguments;  // the cubin lists them from last to first
  std::sort(arguments.begin(), arguments.end(),
            [](const auto& a, const auto& b) { return a.ordinal < b.ordinal; });
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].ordinal != i) damaged("arguments of '" + kernel.name + "' are not numbered from 0");
}

std::string_view symbol_name(std::span<const std::byte> names, std::uint32_t offset) {
  if (offset >= names.size()) damaged("a symbol name lies outside its string table");
  const char* text = reinterpret_cast<const char*>(names.data()) + offset;
  return {text, ::strnlen(text, names.size() - offset)};
}

CubinVariable variable_of(const Elf& elf, const Elf64_Sym& symbol, std::string_view name) {
  CubinVariable out{std::string(name), symbol.st_size, std::nullopt};
  if (symbol.st_size != sizeof(std::int64_t) || symbol.st_shndx >= elf.sections().size()) return out;
  const ElfSection& section = elf.sections()[symbol.st_shndx];
  // A section without bytes is zero.
  out.value = section.bytes.empty() ? 0 : at<std::int64_t>(section.bytes, symbol.st_value);
  return out;
}

/// The arch. Up to ELF ABI 7 (toolkit 12, archs before sm_100) the low byte of the flags has it, from ABI
/// 8 on the second byte.
int sm_of(const Elf& elf) {
  const int sm = elf.abi_version() >= 8 ? elf.flags() >> 8 & 0xff : elf.flags() & 0xff;
  if (sm < 50) damaged("no architecture in its flags");
  return sm;
}

}  // namespace

CubinFacts read_cubin(std::span<const std::byte> image) {
  const Elf elf(image);
  if (elf.machine() != EM_CUDA) throw Error(Errc::io, "not a CUDA ELF image");
  CubinFacts facts;
  facts.sm = sm_of(elf);

  std::unordered_map<std::string_view, const ElfSection*> sections;
  for (const ElfSection& section : elf.sections()) sections.emplace(section.name, &section);
  const auto find = [&](const std::string& name) -> const ElfSection* {
    const auto it = sections.find(name);
    return it == sections.end() ? nullptr : it->second;
  };

  std::unordered_map<std::uint32_t, std::size_t> kernel_of_symbol;
  if (const ElfSection* symbols = find(".symtab")) {
    if (symbols->link >= elf.sections().size()) damaged("symbols without names");
    const auto names = elf.sections()[symbols->link].bytes;
    for (std::uint32_t i = 0; i < symbols->bytes.size() / sizeof(Elf64_Sym); ++i) {
      const auto symbol = at<Elf64_Sym>(symbols->bytes, i * sizeof(Elf64_Sym));
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_shndx != SHN_UNDEF)
        facts.variables.push_back(variable_of(elf, symbol, symbol_name(names, symbol.st_name)));
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !(symbol.st_other & kStoCudaEntry)) continue;
      CubinKernel kernel;
      kernel.name = symbol_name(names, symbol.st_name);
      const ElfSection* text = find(".text." + kernel.name);
      if (!text) damaged("no code for '" + kernel.name + "'");
      if (const ElfSection* info = find(".nv.info." + kernel.name))
        read_kernel_attributes(kernel, info->bytes, text->bytes);
      if (const ElfSection* shared = find(".nv.shared." + kernel.name)) {
        const std::uint64_t reserved = facts.sm >= 90 ? std::min(kReservedSharedBytes, shared->size) : 0;
        kernel.shared_bytes = static_cast<std::uint32_t>(shared->size - reserved);
      }
      kernel_of_symbol.emplace(i, facts.kernels.size());
      facts.kernels.push_back(std::move(kernel));
    }
  }
  if (const ElfSection* info = find(".nv.info")) {
    for_each_attribute(info->bytes, [&](std::uint8_t attribute, std::span<const std::byte> payload) {
      if (attribute != REGCOUNT && attribute != FRAME_SIZE && attribute != MIN_STACK_SIZE) return;
      const auto it = kernel_of_symbol.find(at<std::uint32_t>(payload, 0));
      if (it == kernel_of_symbol.end()) return;  // a device function
      CubinKernel& kernel = facts.kernels[it->second];
      const auto value = at<std::uint32_t>(payload, 4);
      if (attribute == REGCOUNT)
        kernel.registers = value;
      else
        kernel.stack_bytes = std::max(kernel.stack_bytes, value);
    });
  }
  return facts;
}

const CubinVariable* CubinFacts::variable(std::string_view lowered_name) const noexcept {
  for (const CubinVariable& variable : variables)
    if (variable.name == lowered_name) return &variable;
  return nullptr;
}

const CubinKernel* CubinFacts::kernel(std::string_view lowered_name) const noexcept {
  for (const CubinKernel& kernel : kernels)
    if (kernel.name == lowered_name) return &kernel;
  return nullptr;
}

}  // namespace kiln::toolchain
