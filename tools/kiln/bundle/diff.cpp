// kiln bundle diff: which entries two bundles, or a bundle and the cache, do not share.
#include "tools/kiln/bundle/diff.hpp"

#include <algorithm>
#include <cstdint>

#include "base/text.hpp"
#include "base/wire.hpp"
#include "cache/blob/blob.hpp"
#include "tools/kiln/bundle/input.hpp"
#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/interrupt.hpp"
#include "tools/kiln/store/bundle_stores.hpp"
#include "tools/kiln/store/bundled_entry.hpp"

namespace kiln::cli {
namespace {

struct DiffArguments {
  std::string a, b;
  bool store = false;
};

using Next = std::function<std::optional<cache::Record>()>;

/// Removes the times, which a bundle made by other software may contain.
cache::Record normalised(cache::Record entry) {
  if (auto out = as_bundled(entry)) return std::move(*out);
  return entry;
}

/// Returns the result of `body`. An error of `body` names the bundle.
template <class Body>
auto about(const std::string& path, Body&& body) {
  try {
    return body();
  } catch (const Error&) {
    const BundleFault fault = fault_of_current(name_of_bundle(path));
    if (fault.damage) throw bundle::Refused(fault.message);
    throw Error(fault.code, fault.message);
  }
}

Next entries_of_bundle(const std::string& path) {
  BundleFlags flags;
  flags.file = path;
  const auto bundle = about(path, [&] { return std::make_shared<OpenBundle>(flags); });
  return [bundle, path] {
    return about(path, [&]() -> std::optional<cache::Record> {
      auto entry = bundle->next();
      if (!entry) return std::nullopt;
      check_entry(*entry);
      return normalised(std::move(*entry));
    });
  };
}

Next entries_of_store(const std::shared_ptr<BundleStores>& stores) {
  const auto keys = std::make_shared<std::vector<Key>>(
      stores->keys([](const std::string&, const std::string&) { return true; }));
  for (const Key& key : stores->blobs()) keys->push_back(key);
  std::sort(keys->begin(), keys->end());
  const auto at = std::make_shared<std::size_t>(0);
  return [stores, keys, at]() -> std::optional<cache::Record> {
    while (*at < keys->size())
      if (auto entry = stores->read((*keys)[(*at)++])) return entry;
    return std::nullopt;
  };
}

struct Difference {
  enum class Kind { only_a, only_b, other_bytes } kind;
  Key key;
  std::string label;
  std::vector<std::string> unequal{};  ///< for other_bytes: "facts", "key text", "image"
};

std::string label_of(const cache::Record& entry) {
  try {
    if (compile::is_choice(entry.facts))
      return trust::printable("tuned choice of " + compile::decode_choice(entry.facts).label());
    if (cache::is_blob(entry.facts)) return trust::printable(cache::decode_blob(entry.facts).label());
    const compile::Facts facts = compile::decode_facts(entry.facts);
    return trust::printable(facts.specialization().to_string() + ' ' + facts.arch);
  } catch (const base::Malformed&) {
    return "(of another version of kiln)";
  }
}

std::vector<std::string> unequal_parts(const cache::Record& a, const cache::Record& b) {
  std::vector<std::string> out;
  if (a.facts != b.facts) out.push_back("facts");
  if (a.key_text != b.key_text) out.push_back("key text");
  if (a.image != b.image) out.push_back("image");
  return out;
}

struct Differences {
  std::uint64_t same = 0;
  std::vector<Difference> all;
  std::size_t count(Difference::Kind kind) const {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [kind](const Difference& d) { return d.kind == kind; }));
  }
};

/// `b_is_store`: its blobs are compared, and not listed where `a` has none of their key.
/// REQUIRES: both sides ascend by key.
Differences compare(const Next& next_a, const Next& next_b, bool b_is_store) {
  Differences out;
  auto a = next_a(), b = next_b();
  while (a || b) {
    if (PoliteInterrupt::requested()) throw Interrupted{};
    if (!b || (a && a->key < b->key)) {
      out.all.push_back({Difference::Kind::only_a, a->key, label_of(*a)});
      a = next_a();
    } else if (!a || b->key < a->key) {
      if (!b_is_store || !cache::is_blob(b->facts))
        out.all.push_back({Difference::Kind::only_b, b->key, label_of(*b)});
      b = next_b();
    } else {
      auto unequal = unequal_parts(*a, *b);
      if (unequal.empty())
        ++out.same;
      else
        out.all.push_back({Difference::Kind::other_bytes, a->key, label_of(*a), std::move(unequal)});
      a = next_a(), b = next_b();
    }
  }
  return out;
}

Json json_list(const Differences& found, Difference::Kind kind) {
  Json out = Json::array();
  for (const Difference& difference : found.all) {
    if (difference.kind != kind) continue;
    out.push_back({{"key", difference.key.hex()}, {"entry", difference.label}});
    if (kind == Difference::Kind::other_bytes) out.back()["differs"] = difference.unequal;
  }
  return out;
}

void print_differences(const Differences& found) {
  static constexpr const char* marks[] = {"- ", "+ ", "! "};
  static constexpr Style styles[] = {Style::red, Style::green, Style::yellow};
  const Terminal terminal = standard_output();
  std::vector<Key> keys;
  for (const Difference& difference : found.all) keys.push_back(difference.key);
  const KeyNames names(std::move(keys));
  for (const Difference& difference : found.all) {
    const auto kind = static_cast<int>(difference.kind);
    const std::string line =
        marks[kind] + names.of(difference.key) + "  " + difference.label +
        (difference.unequal.empty() ? "" : ": different " + base::join(difference.unequal, ", "));
    print(paint(line, styles[kind], terminal) + '\n');
  }
}

int diff(const Context& context, const DiffArguments& arguments) try {
  if (arguments.b.empty() != arguments.store)
    throw Error(Errc::invalid_argument,
                "expected a second bundle, or --store for the cache and its layers, but not both");
  const PoliteInterrupt interrupt;
  const std::string name_b = arguments.store ? "the cache" : name_of_bundle(arguments.b);
  const Next a = entries_of_bundle(arguments.a);
  std::shared_ptr<BundleStores> stores;
  if (arguments.store) stores = std::make_shared<BundleStores>(context.config());
  const Differences found =
      compare(a, stores ? entries_of_store(stores) : entries_of_bundle(arguments.b), arguments.store);
  using Kind = Difference::Kind;
  if (context.json) {
    print_json({{"schema", context.schema()},
                {"a", arguments.a},
                {"b", arguments.store ? Json(nullptr) : Json(arguments.b)},
                {"same", found.same},
                {"only_a", json_list(found, Kind::only_a)},
                {"only_b", json_list(found, Kind::only_b)},
                {"other_bytes", json_list(found, Kind::other_bytes)}});
  } else {
    print_differences(found);
    print_paragraph(counted(found.same, "entry", "entries") + " the same, " +
                    std::to_string(found.count(Kind::only_a)) + " only in " + name_of_bundle(arguments.a) +
                    ", " + std::to_string(found.count(Kind::only_b)) + " only in " + name_b + ", " +
                    std::to_string(found.count(Kind::other_bytes)) + " with other bytes");
  }
  if (stores && !stores->damaged().empty()) return exit_of(stores->damaged());
  return found.all.empty() ? kDone : kPartly;
} catch (const Interrupted&) {
  return kInterrupted;
} catch (const bundle::Refused& refused) {
  return report_damage(context, refused.what());
}

}  // namespace

void add_bundle_diff(Command bundle, Context& context) {
  const auto arguments = std::make_shared<DiffArguments>();
  const Command sub = context.add_command(bundle, "diff", "Compare two bundles, or a bundle with the cache",
                                          [&context, arguments] { return diff(context, *arguments); });
  sub.option("a", arguments->a, "The first bundle").type_name("A").required();
  sub.option("b", arguments->b, "The second bundle").type_name("B");
  sub.flag("--store", arguments->store, "Compare with the cache and its layers instead of a second bundle");
  sub.footer(
      "Signs before entries: - only in A, + only in B, ! in both with other bytes. Times are not compared.\n"
      "Exit status: 0 the same entries, 1 cannot be read, 2 usage, 3 they differ, 4 damaged.");
}

}  // namespace kiln::cli
