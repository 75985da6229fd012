// A bounded reader of little-endian ELF64 files, as far as build-ids and cubins need it. A damaged file gives
// an Error, never a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::toolchain {

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0, link = 0, info = 0;
  std::uint64_t flags = 0, size = 0;
  std::span<const std::byte> bytes;  ///< empty for SHT_NOBITS
};

class Elf {
 public:
  /// Makes a view of `file`, which must outlive this object. Throws Error(io) when `file` is not an ELF64
  /// file or a table is out of bounds.
  explicit Elf(std::span<const std::byte> file);

  std::uint16_t machine() const noexcept { return machine_; }
  std::uint32_t flags() const noexcept { return flags_; }
  std::uint8_t abi_version() const noexcept { return abi_version_; }
  const std::vector<ElfSection>& sections() const noexcept { return sections_; }
  const ElfSection* section(std::string_view name) const noexcept;

 private:
  std::uint16_t machine_ = 0;
  std::uint32_t flags_ = 0;
  std::uint8_t abi_version_ = 0;
  std::vector<ElfSection> sections_;
};

}  // namespace kiln::toolchain
