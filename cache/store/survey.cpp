#include "cache/store/survey.hpp"

#include <algorithm>

namespace kiln::cache {

std::vector<Surveyed> survey(const PageFile& file) {
  std::vector<Surveyed> out, orphans;
  std::size_t at = 0;  // uses follow all records, in the same order
  TreeCursor cursor(file);
  for (bool more = cursor.seek(kFirstPieceKey); more; more = cursor.next()) {
    const std::string_view bytes = cursor.key();
    if (const auto piece = parse_piece_key(bytes)) {
      if (out.empty() || out.back().key != piece->key) out.push_back({piece->key});
      ++out.back().pieces;
    } else if (const auto key = parse_use_key(bytes)) {
      while (at < out.size() && out[at].key < *key) ++at;
      const std::int64_t tick = decode_use(cursor.value().bytes).tick;
      if (at < out.size() && out[at].key == *key)
        out[at].tick = tick;
      else
        orphans.push_back({*key, Surveyed::kNeverUsed, 0});
    }
  }
  out.insert(out.end(), orphans.begin(), orphans.end());
  return out;
}

std::vector<Surveyed> survey_by_use(const PageFile& file, const RecentUses& recent) {
  auto out = survey(file);
  for (Surveyed& entry : out)
    if (entry.pieces > 0) entry.tick = recent.later(entry.key, entry.tick);
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  return out;
}

}  // namespace kiln::cache
