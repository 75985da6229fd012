// The bytes of a tiny shared library: an ELF header, and one PT_NOTE segment with the given notes.
#pragma once

#include <elf.h>

#include <string>

namespace kiln::test {

/// One note; name and descriptor padded to 4 bytes.
inline std::string elf_note(std::uint32_t type, std::string name, std::string descriptor) {
  const Elf64_Nhdr header{static_cast<Elf64_Word>(name.size()), static_cast<Elf64_Word>(descriptor.size()),
                          type};
  name.resize((name.size() + 3) / 4 * 4);
  descriptor.resize((descriptor.size() + 3) / 4 * 4);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + name + descriptor;
}

inline std::string gnu_build_id_note(const std::string& id) {
  return elf_note(NT_GNU_BUILD_ID, std::string("GNU\0", 4), id);
}

inline std::string elf_with_notes(const std::string& notes) {
  Elf64_Ehdr header{};
  for (int i = 0; i < SELFMAG; ++i) header.e_ident[i] = static_cast<unsigned char>(ELFMAG[i]);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof header + sizeof segment;
  segment.p_filesz = notes.size();
  segment.p_align = 4;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(reinterpret_cast<const char*>(&segment), sizeof segment) + notes;
}

}  // namespace kiln::test
