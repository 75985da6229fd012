// The seal of a whole process, shared by every copy of kiln in it.
//
// Copies may be shared objects loaded with RTLD_LOCAL, or static and hidden inside other libraries, so no
// symbol finds them. Each carries an ELF note instead, as every loaded object's program headers show:
//
//   name "kiln", type 0x5ea1, descriptor: int32 version (1), int32 distance from this field to a 32-bit
//   flag of the copy, 1 once the process is sealed
//
// Sealing sets the flag of every copy there is; a copy that comes later finds the flags of the others when it
// makes its first service. Copies in another linker namespace (dlmopen) are not seen: dl_iterate_phdr shows
// its caller's own.
#pragma once

namespace kiln::runtime {

void seal_process() noexcept;
/// One memory load.
bool process_is_sealed() noexcept;
/// To be called when a service is made: takes over the seal of copies that were there before this one.
void join_process_seal() noexcept;

}  // namespace kiln::runtime
