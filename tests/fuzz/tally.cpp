// The file of the lifetime counters, with its checksum made right and as it is.
#include "cache/store/tally.hpp"

#include <cstring>

#include "base/hash.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;

namespace {

void read_and_add(const fuzz::File& file, std::string_view bytes) {
  file.write(bytes);
  cache::Tally tally(file.directory() + "/v1");
  const auto before = tally.read();
  const std::uint64_t one[] = {1, 2};
  fuzz::expect(tally.add(one), "counting");
  const auto after = tally.read();
  fuzz::expect(before.size() == cache::kTallyValues && after.size() == before.size(), "the number of values");
  fuzz::expect(after[0] == before[0] + 1 && after[1] == before[1] + 2 && after[2] == before[2], "the sums");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file("counters");
  std::string bytes(fuzz::view(data, size));
  read_and_add(file, bytes);
  if (bytes.size() >= 528) {
    const std::uint64_t sum = base::hash64(std::string_view(bytes).substr(0, 520));
    std::memcpy(bytes.data() + 520, &sum, sizeof sum);
    read_and_add(file, bytes);
  }
  return 0;
}
