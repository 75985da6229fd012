// The page reader on a whole file: all code that reads a store, and the check before a write. Half of the
// mutations know the structure of an LMDB file (tests/fault/damage/mutation.hpp).
#include <algorithm>
#include <cstring>
#include <random>

#include "cache/record/record.hpp"
#include "cache/store/file/page_check.hpp"
#include "cache/store/file/pieces.hpp"
#include "cache/store/store.hpp"
#include "cache/store/survey.hpp"
#include "tests/fault/damage/mutation.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;
using namespace kiln::cache;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (seed % 2 == 0 || size < 2 * cache::test::MutableFile::kPage)
    return LLVMFuzzerMutate(data, size, max_size);
  std::mt19937 random(seed);
  cache::test::MutableFile file(std::string(fuzz::view(data, size)));
  file.mutate(random);
  std::memcpy(data, file.bytes().data(), size);
  return size;
}

namespace {

template <typename Body>
void damage_allowed(Body&& body) {
  try {
    body();
  } catch (const Error&) {  // Damaged, or the file cannot be read
  }
}

Key some_key(std::uint8_t number) {
  Key key;
  key.specialisation.bytes[3] = number;
  return key;
}

void read_pages(int fd) {
  const PageFile pages(fd, newest_snapshot(fd));
  for (const TreeRoot& root : {pages.snapshot().main, pages.snapshot().free})
    damage_allowed([&] {
      walk_tree(pages, root,
                {[](const TreePage& page, const KeyBounds& bounds) { check_strictly(page, bounds); },
                 [](const Damaged&) {}});
    });
  damage_allowed([&] { survey(pages); });
  for (std::uint8_t number = 0; number < 8; ++number) {
    damage_allowed([&] {
      Buffer out;
      if (copy_record(pages, some_key(number), out) == Copied::complete) decode(some_key(number), out.view());
    });
    damage_allowed([&] {
      std::vector<std::pair<std::uint64_t, std::uint64_t>> values;
      pieces_of(pages, some_key(number), &values);
      for (const auto& [page, size] : values) pages.check_overflow(page, size);
    });
  }
  damage_allowed([&] {
    PageCheck check(pages);
    damage_allowed([&] { check.insertion(piece_key(some_key(3), 0)); });
    damage_allowed([&] { check.whole_tree(); });
  });
}

void read_store(const std::string& directory) {
  StoreOptions options;
  options.directory = directory, options.access = Access::read_only;
  const auto store = Store::open(options);
  const base::Deadline soon = base::Deadline::after(std::chrono::seconds(5));
  damage_allowed([&] { store->list([](const Entry&) {}); });
  damage_allowed([&] { store->stats(); });
  damage_allowed([&] { store->verify(); });
  store->find(some_key(2).specialisation, soon);
  store->peek(some_key(1), soon);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file("data.mdb");
  file.write(fuzz::view(data, size));
  const base::Fd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
  damage_allowed([&] { read_pages(fd.get()); });
  damage_allowed([&] { read_store(file.directory()); });
  return 0;
}
