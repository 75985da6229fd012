// Appends what this process asks for to a trace, a file that `kiln prewarm` takes (KILN_RECORD).
//
// instantiate/trace_text.hpp has the format. Any number of threads and processes write to the file:
// - Each row is one write under an open-file-description lock on the file itself. A row that fails in the
//   middle (full disk) is taken back.
// - A torn end that a killed writer left goes away with the next row.
// - Under the lock, a writer first reads what others have appended. So no row is there twice, whichever
//   process or run asked first.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/deadline.hpp"
#include "base/process.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/digest.hpp"

namespace kiln::runtime {

/// Thread-safe. A forked child starts with an empty state, and uses nothing that its parent may have locked.
class Recorder {
 public:
  /// `file` empty: records nothing. Touches no file yet.
  explicit Recorder(const std::string& file);
  /// Tries once more to write the rows that are still pending.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records each specialisation once per process. A template from memory is first dumped beside the file. A
  /// fault of the file is one warning, never an error, and costs the caller at most the lock's deadline.
  enum class When { now, later };  ///< later: with the next row, or at the end; touches no file
  void record(const source::Template& origin, const source::Resolved& resolved,
              When when = When::now) noexcept;

 private:
  struct Row {
    std::string text;
    Digest digest;
    std::string template_name;
    source::MemoryTemplate dump;         ///< manifest empty: the template lies in a file
    source::WorkListKinds work_lists{};  ///< the kinds that the manifest was read with
  };
  struct State {
    std::mutex mutex;  // guards what follows
    std::set<Digest> asked;
    std::deque<Row> pending;
    std::set<Digest> in_file;
    std::uint64_t device = 0, inode = 0;  // the file that `in_file` and `read` are about
    std::int64_t read = 0;                // bytes of it that are known
    bool patient = true;  // false: the lock's deadline has passed once, and later rows do not wait
    std::map<std::string, bool, std::less<>> dumped;  // false: another process's template has the name
  };
  void drain(State& state);
  bool catch_up(State& state, int fd);
  bool append(State& state, int fd, const Row& row);
  bool is_ours(State& state, const Row& row);
  void warn(const char* what) const noexcept;

  const std::string file_;  // absolute
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
