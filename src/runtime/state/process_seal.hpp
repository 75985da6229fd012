// The seal of a whole process, shared by every copy of kiln in it.
//
// Copies may be shared objects loaded with RTLD_LOCAL, or static and hidden inside other libraries, so no
// symbol finds them. Each copy carries an ELF note instead, which the program headers of loaded objects show:
//
//   name "kiln", type 0x5ea1, descriptor: int32 version (1), int32 distance from this field to a 32-bit
//   flag of the copy, 1 once the process is sealed
//
// Sealing sets the flag of every loaded copy. A copy that is loaded later finds these flags when it makes a
// service. Copies in another linker namespace (dlmopen) are not seen: dl_iterate_phdr shows only
// its caller's namespace.
#pragma once

namespace kiln::runtime {

void seal_process() noexcept;
/// One memory load.
bool process_is_sealed() noexcept;
/// Takes over the seal of copies that were there before this one. Call it when a service is made.
void join_process_seal() noexcept;

}  // namespace kiln::runtime
