// Makes system calls fail on demand. The library stands before libc:
// it is linked in front of it, or preloaded.
//
// Rules are in FAULT_RULES or given to kiln_fault_arm, and separated by ';':
//   CALL[@TEXT]:WHEN:ACTION
//
// CALL is a call, or a group of calls:
// - pwrite pwritev write writev fdatasync fsync msync ftruncate rename link unlink mkdir send mmap pread
// - create: an open that makes the file
// - lock, unlock: F_OFD_SETLK
// - data: a write through an ordinary descriptor
// - meta: a write through an O_DSYNC descriptor, as of LMDB's meta page
// - sync: fdatasync, fsync, msync
// - any: every call except mmap and pread
//
// TEXT is a part of the file's path. Without it the rule applies to every file and socket.
//
// WHEN counts the calls of this process that CALL@TEXT names:
// - N: the Nth call
// - N+: the Nth call and every later one
//
// ACTION is one of:
// - ENOSPC EDQUOT EIO ENOMEM EFBIG EACCES EROFS EMFILE: the call is not made, and fails with this error
// - after=EIO, or another of these errors: the call is made, and reported as failed
// - short: half of the bytes are written, and this is reported
// - kill, kill-after, kill-half: SIGKILL before the call, after it, after half of a write
// - stop: SIGSTOP before the call
// - delay=MS: sleeps before the call
#pragma once

#include <cstdint>

#define KILN_FAULT_API __attribute__((visibility("default")))

extern "C" {
/// Replaces the rules of this process and counts from zero; null or ""
/// disarms. Aborts on a rule that it cannot parse.
/// Not thread-safe: no other thread may make calls meanwhile.
KILN_FAULT_API void kiln_fault_arm(const char* rules);
/// Number of calls since arming that match the first rule's CALL@TEXT.
KILN_FAULT_API std::uint64_t kiln_fault_seen();
/// Number of times that a rule was applied since arming.
KILN_FAULT_API std::uint64_t kiln_fault_fired();

/// From now on appends each change to files under `directory` to the file `log`, until the process ends.
/// record.hpp has the log's grammar. Forked children record too.
KILN_FAULT_API void kiln_fault_record(const char* directory, const char* log);
/// Writes a mark with the caller's number into the log. Everything logged before the mark happened before it.
KILN_FAULT_API void kiln_fault_mark(std::uint64_t number);
}
