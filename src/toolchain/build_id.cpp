#include "toolchain/build_id.hpp"

#include <elf.h>
#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace kiln::toolchain {
namespace {

constexpr std::size_t kMaxHeaders = 4096, kMaxNoteBytes = 64 << 10, kMaxIdBytes = 64;

/// An open file. Its first bytes are read once, because they usually contain the headers and the note.
class Image {
 public:
  explicit Image(int fd) : fd_(fd), known_(read_some(0, head_, sizeof head_)) {}

  bool read(std::uint64_t offset, void* out, std::size_t size) const noexcept {
    if (offset > INT64_MAX - size) return false;
    if (offset + size > known_) return read_some(offset, out, size) == size;
    std::memcpy(out, head_ + offset, size);
    return true;
  }

 private:
  /// Number of bytes that were read: fewer than `size` at the file's end or after an error.
  std::size_t read_some(std::uint64_t offset, void* out, std::size_t size) const noexcept {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t n =
          ::pread(fd_, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  const int fd_;
  char head_[2048];
  const std::size_t known_;  // declared after `head_`, which its initialiser fills
};

/// Reads notes until their end: an Elf64_Nhdr, then name and descriptor, both padded to `align`.
std::optional<std::string> id_in(std::string_view notes, std::size_t align) {
  const auto padded = [align](std::size_t n) { return (n + align - 1) / align * align; };
  for (Elf64_Nhdr note; notes.size() >= sizeof note;) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t descriptor = padded(sizeof note + std::size_t{note.n_namesz});
    if (descriptor > notes.size() || note.n_descsz > notes.size() - descriptor) return std::nullopt;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        notes.substr(sizeof note, 4) == std::string_view("GNU\0", 4) && note.n_descsz > 0 &&
        note.n_descsz <= kMaxIdBytes) {
      return base::hex(notes.substr(descriptor, note.n_descsz));
    }
    notes.remove_prefix(std::min(notes.size(), padded(descriptor + note.n_descsz)));
  }
  return std::nullopt;
}

/// The id in the notes of one kind of table: segments or sections.
template <class Header, class Range>
std::optional<std::string> id_through(const Image& image, std::uint64_t table, std::size_t count,
                                      std::size_t header_size, Range&& note_range) {
  if (header_size != sizeof(Header) || count > kMaxHeaders) return std::nullopt;
  std::vector<Header> headers(count);
  if (!image.read(table, headers.data(), count * sizeof(Header))) return std::nullopt;
  for (const Header& header : headers) {
    const auto [is_note, offset, size, align] = note_range(header);
    if (!is_note || size > kMaxNoteBytes) continue;
    std::string notes(size, '\0');
    if (!image.read(offset, notes.data(), notes.size())) continue;
    if (auto id = id_in(notes, align == 8 ? 8 : 4)) return id;
  }
  return std::nullopt;
}

struct NoteRange {
  bool is_note;
  std::uint64_t offset, size, align;
};

}  // namespace

std::optional<std::string> build_id_of(const std::string& path) {
  return build_id_of(base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)));
}

std::optional<std::string> build_id_of(const base::Fd& file) {
  // A directory or a pipe needs no check: pread fails.
  const Image image(file.get());
  Elf64_Ehdr header;
  if (!image.read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return std::nullopt;
  }
  if (auto id = id_through<Elf64_Phdr>(
          image, header.e_phoff, header.e_phnum, header.e_phentsize, [](const auto& segment) {
            return NoteRange{segment.p_type == PT_NOTE, segment.p_offset, segment.p_filesz, segment.p_align};
          })) {
    return id;
  }
  // patchelf moves the note's section, but not its segment. The pip wheels of CUDA 12's libnvrtc are so.
  return id_through<
      Elf64_Shdr>(image, header.e_shoff, header.e_shnum, header.e_shentsize, [](const auto& section) {
    return NoteRange{section.sh_type == SHT_NOTE, section.sh_offset, section.sh_size, section.sh_addralign};
  });
}

}  // namespace kiln::toolchain
