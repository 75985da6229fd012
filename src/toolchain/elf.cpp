#include "toolchain/elf.hpp"

#include <elf.h>

#include <cstring>

#include "kiln/error.hpp"

namespace kiln::toolchain {
namespace {

[[noreturn]] void damaged(const char* what) {
  throw Error(Errc::io, std::string("damaged ELF image: ") + what);
}

/// `count` objects of `each` bytes at `offset`, or an Error; no sum or product can wrap.
std::span<const std::byte> slice(std::span<const std::byte> file, std::uint64_t offset, std::uint64_t count,
                                 std::uint64_t each, const char* what) {
  if (offset > file.size() || count > (file.size() - offset) / each) damaged(what);
  return file.subspan(offset, count * each);
}

template <class T>
T read(std::span<const std::byte> bytes, std::size_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);  // files promise no alignment
  return value;
}

std::string_view name_at(std::span<const std::byte> names, std::uint32_t offset) {
  if (offset >= names.size()) damaged("a section name lies outside its string table");
  const char* text = reinterpret_cast<const char*>(names.data()) + offset;
  const void* end = std::memchr(text, 0, names.size() - offset);
  if (!end) damaged("a section name has no end");
  return {text, static_cast<std::size_t>(static_cast<const char*>(end) - text)};
}

}  // namespace

Elf::Elf(std::span<const std::byte> file) {
  if (file.size() < sizeof(Elf64_Ehdr)) damaged("shorter than its header");
  const auto header = read<Elf64_Ehdr>(file);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    throw Error(Errc::io, "not a little-endian ELF64 image");
  }
  machine_ = header.e_machine;
  flags_ = header.e_flags;
  abi_version_ = header.e_ident[EI_ABIVERSION];
  if (header.e_shoff == 0) return;
  if (header.e_shentsize != sizeof(Elf64_Shdr)) damaged("section headers of an unknown size");

  // Counts that do not fit the header's 16 bits are kept in section 0 (gABI, "Extended section numbering").
  const auto first =
      read<Elf64_Shdr>(slice(file, header.e_shoff, 1, sizeof(Elf64_Shdr), "no section headers"));
  const std::uint64_t count = header.e_shnum ? header.e_shnum : first.sh_size;
  const std::uint32_t names_index = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
  const auto table = slice(file, header.e_shoff, count, sizeof(Elf64_Shdr), "section headers out of bounds");
  if (names_index >= count) damaged("no section name table");

  const auto bytes_of = [&](const Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) return std::span<const std::byte>();
    return slice(file, section.sh_offset, section.sh_size, 1, "a section out of bounds");
  };
  const auto names = bytes_of(read<Elf64_Shdr>(table, names_index));
  sections_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto section = read<Elf64_Shdr>(table, i);
    // Section 0 has no name, and may hold counts in its other fields.
    const std::string_view name =
        section.sh_type == SHT_NULL ? std::string_view() : name_at(names, section.sh_name);
    sections_.push_back({name, section.sh_type, section.sh_link, section.sh_info, section.sh_flags,
                         section.sh_size, bytes_of(section)});
  }
}

const ElfSection* Elf::section(std::string_view name) const noexcept {
  for (const ElfSection& section : sections_)
    if (section.name == name) return &section;
  return nullptr;
}

}  // namespace kiln::toolchain
