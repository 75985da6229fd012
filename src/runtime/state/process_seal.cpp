#include "runtime/state/process_seal.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

extern "C" {
/// Other copies write this flag, too. The layout of the note is the contract between copies.
__attribute__((visibility("hidden"), used)) std::int32_t kiln_process_sealed_flag = 0;
}

asm(R"(
  .pushsection .note.kiln.seal, "a", %note
  .balign 4
  .long 5
  .long 8
  .long 0x5ea1
  .asciz "kiln"
  .balign 4
  .long 1
  .long kiln_process_sealed_flag - .
  .balign 4
  .popsection
)");

namespace kiln::runtime {
namespace {

constexpr std::uint32_t kNoteType = 0x5ea1;
constexpr std::int32_t kVersion = 1;

/// The flag of the copy that a note describes; null when the note is not kiln's.
std::int32_t* flag_of(const ElfW(Nhdr) & note, const char* name, const char* descriptor) noexcept {
  if (note.n_type != kNoteType || note.n_namesz != 5 || note.n_descsz < 8 ||
      std::memcmp(name, "kiln", 5) != 0)
    return nullptr;
  std::int32_t fields[2];
  std::memcpy(fields, descriptor, sizeof fields);
  if (fields[0] != kVersion) return nullptr;
  return reinterpret_cast<std::int32_t*>(reinterpret_cast<std::uintptr_t>(descriptor) + 4 +
                                         static_cast<std::uintptr_t>(static_cast<std::intptr_t>(fields[1])));
}

template <class Each>
void each_copy(Each&& each) noexcept {
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* call) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& header = object->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          // Notes with 8-byte alignment (GNU properties) are padded to 8 bytes.
          const std::uintptr_t align = header.p_align >= 8 ? 8 : 4;
          const auto padded = [&](std::uintptr_t n) { return (n + align - 1) / align * align; };
          const bool mapped =
              std::any_of(object->dlpi_phdr, object->dlpi_phdr + object->dlpi_phnum, [&](const auto& load) {
                return load.p_type == PT_LOAD && header.p_vaddr >= load.p_vaddr &&
                       header.p_vaddr + header.p_memsz <= load.p_vaddr + load.p_memsz;
              });
          if (!mapped) continue;
          std::uintptr_t at = object->dlpi_addr + header.p_vaddr;
          const std::uintptr_t end = at + header.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, reinterpret_cast<const void*>(at), sizeof note);
            const std::uintptr_t name = at + sizeof note, descriptor = name + padded(note.n_namesz);
            if (descriptor + note.n_descsz > end) break;
            if (std::int32_t* flag = flag_of(note, reinterpret_cast<const char*>(name),
                                             reinterpret_cast<const char*>(descriptor)))
              (*static_cast<std::remove_reference_t<Each>*>(call))(*flag);
            at = descriptor + padded(note.n_descsz);
          }
        }
        return 0;
      },
      &each);
}

}  // namespace

void seal_process() noexcept {
  std::atomic_ref(kiln_process_sealed_flag).store(1);
  each_copy([](std::int32_t& flag) { std::atomic_ref(flag).store(1); });
}

bool process_is_sealed() noexcept {
  return std::atomic_ref(kiln_process_sealed_flag).load(std::memory_order_relaxed) != 0;
}

void join_process_seal() noexcept {
  if (process_is_sealed()) return;
  bool sealed = false;
  each_copy([&](std::int32_t& flag) { sealed = sealed || std::atomic_ref(flag).load() != 0; });
  if (sealed) seal_process();
}

}  // namespace kiln::runtime
