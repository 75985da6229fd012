#include "toolchain/library_identity.hpp"

#include <elf.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/process.hpp"
#include "toolchain/build_id.hpp"

namespace kiln::toolchain {
namespace {

constexpr std::string_view kDigest = "xxh3-128:";
constexpr std::size_t kDigitsForPeople = 12;

/// Reads at most `size` bytes from `offset` on. Returns nothing after an error.
std::optional<std::size_t> read_at(int fd, std::uint64_t offset, char* out, std::size_t size) noexcept {
  for (;;) {
    const ssize_t n = ::pread(fd, out, size, static_cast<off_t>(offset));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return std::nullopt;
  }
}

bool is_elf(int fd) noexcept {
  char magic[SELFMAG];
  return read_at(fd, 0, magic, sizeof magic) == sizeof magic && std::memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/// The identity by the bytes. Returns "" when the file does not have `size` bytes any more.
std::string digest_identity(int fd, std::uint64_t size) {
  base::DigestStream digest;
  std::vector<char> block(256 << 10);
  std::uint64_t done = 0;
  while (const auto n = read_at(fd, done, block.data(), block.size())) {
    if (*n == 0) return done == size ? std::string(kDigest) + digest.digest().hex() : "";
    digest.add({block.data(), *n});
    done += *n;
  }
  return "";
}

/// The digests of this process, by the stamps of the files.
class Memo {
 public:
  std::string get(int fd, const base::FileStamp& stamp) {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, identity] : digests_)
      if (known == stamp) return identity;
    std::string identity = digest_identity(fd, stamp.size);
    // A younger file may change without a change of its stamp.
    if (stamp.settled() && !identity.empty()) digests_.emplace_back(stamp, identity);
    return identity;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<base::FileStamp, std::string>> digests_;  // one or two in a process
};
constinit base::ProcessWide<Memo> g_memo;

}  // namespace

std::string library_identity(const base::Fd& file) {
  if (auto id = build_id_of(file)) return *std::move(id);
  const auto stamp = base::FileStamp::of_open(file.get());
  if (!stamp || !is_elf(file.get())) return "";
  return g_memo.get().get(file.get(), *stamp);
}

std::string identity_text(const std::string& identity) {
  if (identity.empty()) return "no identity";
  if (identity.starts_with(kDigest)) return "digest " + identity.substr(kDigest.size(), kDigitsForPeople);
  return "build-id " + identity.substr(0, kDigitsForPeople);
}

}  // namespace kiln::toolchain
