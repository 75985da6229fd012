#include "cache/place/filesystem.hpp"

#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>

#include "base/file.hpp"

namespace kiln::cache {
namespace {

enum class Kind { local, memory, network };
struct Known {
  std::uint32_t magic;
  const char* name;
  Kind kind;
};
/// The filesystems by their magic number in statfs(2), from linux/magic.h and from modules out of tree.
constexpr Known kKnown[] = {
    {0xEF53, "ext4", Kind::local},           {0x58465342, "xfs", Kind::local},
    {0x9123683E, "btrfs", Kind::local},      {0x794C7630, "overlayfs", Kind::local},
    {0x2FC12FC1, "zfs", Kind::local},        {0xF2F52010, "f2fs", Kind::local},
    {0xCA451A4E, "bcachefs", Kind::local},   {0x4244, "hfs", Kind::local},
    {0x73717368, "squashfs", Kind::local},   {0xE0F5E1E2, "erofs", Kind::local},
    {0x01021994, "tmpfs", Kind::memory},     {0x858458F6, "ramfs", Kind::memory},
    {0x6969, "nfs", Kind::network},          {0xFF534D42, "cifs", Kind::network},
    {0xFE534D42, "smb2", Kind::network},     {0x517B, "smb", Kind::network},
    {0x01021997, "9p", Kind::network},       {0x00C36400, "ceph", Kind::network},
    {0x0BD00BD0, "lustre", Kind::network},   {0x47504653, "gpfs", Kind::network},
    {0x5346414F, "afs", Kind::network},      {0x6B414653, "kafs", Kind::network},
    {0x19830326, "beegfs", Kind::network},   {0x65735546, "fuse", Kind::network},
    {0x7461636F, "ocfs2", Kind::network},    {0x01161970, "gfs2", Kind::network},
    {0x73757245, "coda", Kind::network},     {0x564C, "ncp", Kind::network},
    {0x20030528, "orangefs", Kind::network}, {0xAAD7AAEA, "panfs", Kind::network},
    {0x61636673, "acfs", Kind::network},     {0xBEEFDEAD, "snfs", Kind::network},
    {0x786F4256, "vboxsf", Kind::network},   {0xBACBACBC, "vmhgfs", Kind::network},
    {0x7C7C6673, "prl_fs", Kind::network},
};

}  // namespace

Filesystem filesystem_of(const std::string& directory) {
  struct statfs st {};
  std::string at = directory;
  while (::statfs(at.c_str(), &st) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || at == "/" || at == ".") return {"unknown"};
    at = base::directory_of(at);
    if (at.empty()) at = "/";
  }
  const std::uint64_t free_bytes =
      static_cast<std::uint64_t>(st.f_bavail) * static_cast<std::uint64_t>(st.f_bsize);
  const auto magic = static_cast<std::uint32_t>(st.f_type);
  for (const Known& known : kKnown) {
    if (known.magic == magic)
      return {known.name, known.kind == Kind::network, known.kind == Kind::memory, free_bytes};
  }
  char text[32];
  std::snprintf(text, sizeof text, "type 0x%x", magic);
  return {text, false, false, free_bytes};
}

}  // namespace kiln::cache
