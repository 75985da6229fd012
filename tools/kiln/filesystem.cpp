#include "filesystem.hpp"

#include <sys/vfs.h>

#include <cstdio>

namespace kiln::cli {
namespace {

struct Known {
  std::uint32_t magic;  // statfs(2), linux/magic.h
  const char* name;
  bool network, in_memory;
};
constexpr Known kKnown[] = {
    {0xEF53, "ext4", false, false},         {0x58465342, "xfs", false, false},
    {0x9123683E, "btrfs", false, false},    {0x794C7630, "overlayfs", false, false},
    {0x2FC12FC1, "zfs", false, false},      {0xF2F52010, "f2fs", false, false},
    {0xCA451A4E, "bcachefs", false, false}, {0x4244, "hfs", false, false},
    {0x01021994, "tmpfs", false, true},     {0x858458F6, "ramfs", false, true},
    {0x6969, "nfs", true, false},           {0xFF534D42, "cifs", true, false},
    {0xFE534D42, "smb2", true, false},      {0x517B, "smb", true, false},
    {0x01021997, "9p", true, false},        {0x00C36400, "ceph", true, false},
    {0x0BD00BD0, "lustre", true, false},    {0x47504653, "gpfs", true, false},
    {0x5346414F, "afs", true, false},       {0x19830326, "beegfs", true, false},
    {0x65735546, "fuse", true, false},      {0x7461636F, "ocfs2", true, false},
    {0x01161970, "gfs2", true, false},
};

}  // namespace

Filesystem filesystem_of(const std::string& directory) {
  struct statfs st {};
  if (::statfs(directory.c_str(), &st) != 0) return {"unknown"};
  Filesystem out;
  out.free_bytes = static_cast<std::uint64_t>(st.f_bavail) * static_cast<std::uint64_t>(st.f_bsize);
  const auto magic = static_cast<std::uint32_t>(st.f_type);
  for (const Known& known : kKnown) {
    if (known.magic == magic) return {known.name, known.network, known.in_memory, out.free_bytes};
  }
  char text[32];
  std::snprintf(text, sizeof text, "type 0x%x", magic);
  out.name = text;
  return out;
}

}  // namespace kiln::cli
