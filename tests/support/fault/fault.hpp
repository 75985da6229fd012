// Failing system calls on demand: a library that stands before libc, linked in front of it or preloaded.
//
// Rules, in FAULT_RULES or given to kiln_fault_arm, separated by ';':
//   CALL[@TEXT]:WHEN:ACTION
// CALL    pwrite pwritev write writev fdatasync fsync msync ftruncate rename link unlink mkdir create (an
// open
//         that makes the file) lock unlock (F_OFD_SETLK) send mmap pread, or a group: data (a write through
//         an ordinary descriptor), meta (through an O_DSYNC one: LMDB's meta page), sync (fdatasync fsync
//         msync), any (all but mmap and pread).
// TEXT    is contained in the file's path; without it every file counts, sockets too.
// WHEN    N: the Nth such call of the process; N+: every one from the Nth on.
// ACTION  ENOSPC EDQUOT EIO ENOMEM EFBIG EACCES EROFS EMFILE: not done, fails so
//         after=EIO (any of them): done, and reported as failed
//         short: half of the bytes are written, and so reported
//         kill: SIGKILL before it; kill-after: after it; kill-half: after half of a write
//         stop: SIGSTOP before it; delay=MS: sleeps before it
#pragma once

#include <cstdint>

#define KILN_FAULT_API __attribute__((visibility("default")))

extern "C" {
/// Replaces the rules of this process and counts from zero; null or "" disarms. Aborts on a rule that it does
/// not understand. Not beside calls of other threads.
KILN_FAULT_API void kiln_fault_arm(const char* rules);
/// Calls that the first rule's CALL@TEXT named since it was armed.
KILN_FAULT_API std::uint64_t kiln_fault_seen();
/// Rules carried out since they were armed.
KILN_FAULT_API std::uint64_t kiln_fault_fired();

/// Appends what happens to files under `directory` to the file `log` (grammar in record.hpp), until the
/// process ends. Fork inherits it.
KILN_FAULT_API void kiln_fault_record(const char* directory, const char* log);
/// Writes a mark of the caller's into the log: everything logged before it came earlier.
KILN_FAULT_API void kiln_fault_mark(std::uint64_t number);
}
