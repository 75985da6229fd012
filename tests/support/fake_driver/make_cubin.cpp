#include "tests/support/fake_driver/make_cubin.hpp"

#include <elf.h>

#include <algorithm>

#include "base/wire.hpp"

namespace kiln::test {
namespace {

using base::Writer;
using toolchain::CubinKernel;

struct Section {
  std::string name;
  std::uint32_t type = SHT_PROGBITS, link = 0;
  std::string bytes;
  std::uint64_t size = 0;  // only of a NOBITS section
};

template <class... Words>
void attribute(Writer& out, std::uint8_t id, Words... words) {
  out.number(std::uint8_t{4}).number(id).number(static_cast<std::uint16_t>((sizeof(Words) + ...)));
  (out.number(words), ...);
}

std::string kernel_info(const CubinKernel& kernel) {
  Writer out;
  // The first attribute carries its value inside. Arguments go from last to first, as ptxas writes them.
  out.number(std::uint8_t{3}).number(std::uint8_t{0x1b}).number(std::uint16_t{255});
  for (auto it = kernel.arguments.rbegin(); it != kernel.arguments.rend(); ++it) {
    const auto offset = static_cast<std::uint16_t>(it->offset);
    if (it->size < 4096) {
      attribute(out, 0x17, std::uint32_t{0}, it->ordinal, offset, it->size << 18 | 0x1f500);
    } else {
      attribute(out, 0x45, std::uint32_t{0}, it->ordinal, offset, it->size | 0x05000000);
    }
  }
  if (kernel.max_threads) attribute(out, 0x05, kernel.max_threads, std::uint32_t{1}, std::uint32_t{1});
  if (const auto& b = kernel.required_block; b[0]) attribute(out, 0x10, b[0], b[1], b[2]);
  if (const auto& c = kernel.cluster; c[0]) attribute(out, 0x3d, c[0], c[1], c[2]);
  return std::move(out.str());
}

}  // namespace

std::string make_cubin(const CubinRecipe& recipe) {
  std::vector<Section> sections(1);
  sections[0].type = SHT_NULL;
  std::string strings(1, '\0'), symbols(sizeof(Elf64_Sym), '\0');
  Writer info;
  const auto first_text =
      static_cast<std::uint16_t>(4);  // after the null section, .strtab, .symtab and .nv.info
  for (std::size_t i = 0; i < recipe.kernels.size(); ++i) {
    const CubinKernel& kernel = recipe.kernels[i];
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(strings.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_other = 0x10;
    symbol.st_shndx = static_cast<Elf64_Half>(first_text + i);
    symbols.append(reinterpret_cast<const char*>(&symbol), sizeof symbol);
    strings += kernel.name + '\0';
    const auto index = static_cast<std::uint32_t>(i + 1);
    attribute(info, 0x2f, index, kernel.registers);
    attribute(info, 0x11, index, kernel.stack_bytes);
    attribute(info, 0x12, index, kernel.stack_bytes);
  }
  sections.push_back({".strtab", SHT_STRTAB, 0, strings, 0});
  sections.push_back({".symtab", SHT_SYMTAB, 1, symbols, 0});
  sections.push_back({".nv.info", SHT_LOPROC, 2, info.str(), 0});
  for (const CubinKernel& kernel : recipe.kernels)
    sections.push_back({".text." + kernel.name, SHT_PROGBITS, 0, std::string(128, '\0'), 0});
  for (const CubinKernel& kernel : recipe.kernels) {
    sections.push_back({".nv.info." + kernel.name, SHT_LOPROC, 2, kernel_info(kernel), 0});
    const std::uint64_t reserved = recipe.sm >= 90 ? 1024 : 0;
    sections.push_back({".nv.shared." + kernel.name, SHT_NOBITS, 0, "", kernel.shared_bytes + reserved});
  }
  Section names{".shstrtab", SHT_STRTAB, 0, std::string(1, '\0'), 0};
  std::vector<std::uint32_t> name_offsets;
  sections.push_back(names);
  for (const Section& section : sections) {
    name_offsets.push_back(static_cast<std::uint32_t>(sections.back().bytes.size()));
    names.bytes += section.name + '\0';
    sections.back().bytes = names.bytes;
  }

  std::string out(sizeof(Elf64_Ehdr), '\0'), table;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    out.resize((out.size() + 7) / 8 * 8);
    Elf64_Shdr header{};
    header.sh_name = name_offsets[i];
    header.sh_type = section.type;
    header.sh_link = section.link;
    header.sh_offset = out.size();
    header.sh_size = section.type == SHT_NOBITS ? section.size : section.bytes.size();
    table.append(reinterpret_cast<const char*>(&header), sizeof header);
    out += section.bytes;
  }
  out.resize((out.size() + 7) / 8 * 8);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 0x41;
  header.e_ident[EI_ABIVERSION] = static_cast<unsigned char>(recipe.elf_abi);
  header.e_type = ET_EXEC;
  header.e_machine = EM_CUDA;
  header.e_version = EV_CURRENT;
  const auto sm = static_cast<Elf64_Word>(recipe.sm);
  header.e_flags = recipe.elf_abi >= 8 ? 0x06000002 | sm << 8 : sm << 16 | 0x0500 | sm;
  header.e_shoff = out.size();
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
  std::memcpy(out.data(), &header, sizeof header);
  return out + table;
}

CubinKernel make_kernel(const std::string& name, const std::vector<std::uint32_t>& argument_sizes) {
  CubinKernel kernel;
  kernel.name = name;
  kernel.registers = 32;
  std::uint32_t offset = 0;
  for (const std::uint32_t size : argument_sizes) {
    const std::uint32_t align = std::min<std::uint32_t>(size & (~size + 1), 16);
    offset = align ? (offset + align - 1) / align * align : offset;
    kernel.arguments.push_back({static_cast<std::uint16_t>(kernel.arguments.size()), offset, size});
    offset += size;
  }
  return kernel;
}

}  // namespace kiln::test
