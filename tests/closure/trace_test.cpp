// The trace of another process's scan gives the same closure, as long as nothing that
// the scan saw has changed.
#include "closure/trace.hpp"

#include <sys/stat.h>

#include <functional>
#include <random>
#include <thread>

#include "base/hash.hpp"
#include "closure/trace_memo.hpp"
#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

const std::string kSource =
    "#include \"a.h\"\n#include <lib/kit.h>\n#include <gone.h>\n#if __has_include(<lib/late.h>)\n#endif\n";

struct Memory : ClosureTree {
  Memory() {
    project({"p", "q"});
    toolkit({"t", "u"});
    write("p/a.h", "#include \"b.h\"\n#include <lib/kit.h>\nconst char* when = __DATE__;\n");
    write("q/b.h", "int b;\n#define NAME <lib/name.h>\n#include NAME\n");
    write("u/lib/kit.h",
          "#include \"near.h\"\n#include <deep/far.h>\n#include <gone.h>\n#include <shadow.h>\n");
    write("u/lib/near.h", "int near;\n");
    write("u/lib/name.h", "int name;\n");
    write("t/deep/far.h", "#include_next <twice.h>\n#include <p_only.h>\n");
    write("t/twice.h", "int first;\n");
    write("u/twice.h", "int second;\n");
    write("u/shadow.h", "int shadow;\n");
    write("p/p_only.h", "int reached_through_the_toolkit;\n");
  }
  std::string memo() const { return path("memo"); }
  std::string traces() const { return memo() + ".closures"; }
  /// Scans like another process, which has only the traces.
  Closure scan_again(const std::string& source = kSource, Trust trust = Trust::memo) const {
    std::filesystem::remove(memo());
    ScanCache other(memo());
    Closure out = scan_closure(source, extra, search, other, trust);
    return out;
  }
  void learn() const {
    ScanCache first(memo());
    scan_closure(kSource, extra, search, first, Trust::memo);
    first.save();
  }
};

void wait_until_settled() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

void expect_same(const Closure& a, const Closure& b, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(symbolic(a), symbolic(b));
  EXPECT_EQ(identity(a), identity(b));
  EXPECT_EQ(roots(a), roots(b));
  EXPECT_EQ(a.missing, b.missing);
  EXPECT_EQ(a.computed, b.computed);
  EXPECT_EQ(a.toolkit_computed, b.toolkit_computed);
  EXPECT_EQ(a.computed_probes, b.computed_probes);
  EXPECT_EQ(a.date_time, b.date_time);
  ASSERT_EQ(a.files.size(), b.files.size());
  for (std::size_t i = 0; i < a.files.size(); ++i) {
    EXPECT_EQ(a.files[i].path, b.files[i].path);
    EXPECT_EQ(a.files[i].digest, b.files[i].digest) << a.files[i].symbolic;
    EXPECT_EQ(a.files[i].stamp, b.files[i].stamp) << a.files[i].symbolic;
    EXPECT_EQ(a.files[i].toolkit, b.files[i].toolkit);
    EXPECT_EQ(a.files[i].via_toolkit, b.files[i].via_toolkit) << a.files[i].symbolic;
    EXPECT_EQ(a.files[i].settled, b.files[i].settled) << a.files[i].symbolic;
  }
}

TEST(ClosureTrace, EveryChangeOfWhatWasSeenIsNoticed) {
  struct Case {
    const char* what;
    std::function<void(Memory&)> change;
    bool hit = false;
    std::string source = kSource;
  };
  const std::vector<Case> cases = {
      {"nothing", [](Memory&) {}, true},
      {"a file that nobody asks for", [](Memory& t) { t.write("u/lib/other.h", ""); }, true},
      {"a toolkit header is edited", [](Memory& t) { t.write("u/lib/near.h", "int NEAR;\n"); }},
      {"a toolkit header is touched",
       [](Memory& t) { t.write("t/deep/far.h", "#include_next <twice.h>\n#include <p_only.h>\n"); }},
      {"a toolkit header is removed", [](Memory& t) { t.remove("u/lib/near.h"); }},
      {"a project header is edited", [](Memory& t) { t.write("p/a.h", "int other;\n"); }},
      {"a project header that the toolkit reaches is edited",
       [](Memory& t) { t.write("p/p_only.h", "int x;\n"); }},
      {"a project header is written anew, the same",
       [](Memory& t) { t.write("p/p_only.h", "int reached_through_the_toolkit;\n"); }, true},
      {"a missing header appears", [](Memory& t) { t.write("u/gone.h", ""); }},
      {"a header appears before another of its name", [](Memory& t) { t.write("q/shadow.h", ""); }},
      {"a header appears beside its includer", [](Memory& t) { t.write("p/b.h", ""); }},
      {"what __has_include asks for appears", [](Memory& t) { t.write("u/lib/late.h", ""); }},
      {"a folder appears, with a header in it", [](Memory& t) { t.write("p/lib/kit.h", ""); }},
      {"a folder appears, empty", [](Memory& t) { std::filesystem::create_directories(t.path("p/lib")); }},
      {"a folder goes", [](Memory& t) { t.remove("u/lib"); }},
      {"a search directory is replaced",
       [](Memory& t) {
         std::filesystem::rename(t.path("t"), t.path("old"));
         std::filesystem::copy(t.path("old"), t.path("t"), std::filesystem::copy_options::recursive);
       }},
      {"the source is edited", [](Memory&) {}, false, "\n" + kSource},
      {"another extra include", [](Memory& t) { t.extra = {"b.h"}; }},
      {"other directories", [](Memory& t) { t.project({"r"}); }},
      {"directories in another order",
       [](Memory& t) { std::swap(t.search.project[0], t.search.project[1]); }},
  };
  std::vector<Memory> trees(cases.size());
  wait_until_settled();
  for (const Memory& tree : trees) tree.learn();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].change(trees[i]);
    const Closure again = trees[i].scan_again(cases[i].source);
    EXPECT_EQ(again.memoised, cases[i].hit) << cases[i].what;
    expect_same(again, trees[i].scan_again(cases[i].source, Trust::content), cases[i].what);
  }
}

TEST(ClosureTrace, ARandomTreeGivesTheSameClosureFromItsTrace) {
  std::mt19937 random(7);
  const auto upto = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const std::string folders[] = {"", "x/", "y/", "x/y/"};
  const auto name = [&] { return folders[upto(4)] + "h" + std::to_string(upto(8)) + ".h"; };
  std::vector<ClosureTree> trees(40);
  std::vector<std::string> sources;
  for (ClosureTree& tree : trees) {
    tree.project({"p", "q"});
    tree.toolkit({"t", "u"});
    const auto text = [&] {
      std::string out;
      for (unsigned i = upto(5); i > 0; --i) {
        switch (upto(5)) {
          case 0:
            out += "#include \"" + name() + "\"\n";
            break;
          case 1:
            out += "#include_next <" + name() + ">\n";
            break;
          case 2:
            out += "#if __has_include(<" + name() + ">)\n#endif\n";
            break;
          case 3:
            out += "#define M <" + name() + ">\n#include M\n";
            break;
          default:
            out += "#include <" + name() + ">\n";
        }
      }
      return out;
    };
    for (unsigned i = 0; i < 40; ++i) {
      const std::string directory(1, "pqtu"[upto(4)]);
      tree.write(directory + '/' + name(), text());
    }
    sources.push_back("#include <h0.h>\n#include <x/h1.h>\n#include <y/h2.h>\n" + text() + text());
  }
  wait_until_settled();
  int hits = 0;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const std::string memo = trees[i].path("memo");
    ScanCache first(memo), second(memo);
    scan_closure(sources[i], {}, trees[i].search, first, Trust::memo);
    first.save();
    std::filesystem::remove(memo);
    const Closure again = scan_closure(sources[i], {}, trees[i].search, second, Trust::memo);
    hits += again.memoised;
    expect_same(again, trees[i].scan(sources[i]), "tree " + std::to_string(i));
  }
  EXPECT_GT(hits, 30);
}

TEST(ClosureTrace, OnlyWhereMemosAreTrusted) {
  Memory t;
  wait_until_settled();
  t.learn();
  EXPECT_TRUE(t.scan_again().memoised);
  EXPECT_FALSE(t.scan_again(kSource, Trust::content).memoised) << "a compile scans";
  ScanCache none;
  EXPECT_FALSE(scan_closure(kSource, {}, t.search, none, Trust::memo).memoised);
}

TEST(ClosureTrace, YoungToolkitHeadersAndProjectsAloneLeaveNone) {
  Memory t;
  t.learn();
  EXPECT_FALSE(std::filesystem::exists(t.traces())) << "young";
  t.search.toolkit.clear();
  wait_until_settled();
  t.learn();
  EXPECT_FALSE(std::filesystem::exists(t.traces())) << "project files are hashed in every process anyway";
}

TEST(ClosureTrace, NamesWithDotsLeaveNone) {
  Memory t;
  t.write("u/lib/near.h", "#include \"../shadow.h\"\n");
  wait_until_settled();
  t.learn();
  EXPECT_FALSE(std::filesystem::exists(t.traces()));
}

TEST(ClosureMemo, DamageOthersHandsAndTruncationAreIgnored) {
  Memory t;
  wait_until_settled();
  t.learn();
  const Closure right = t.scan_again(kSource, Trust::content);
  const std::string good = base::read_file(t.traces())->bytes;
  const auto look = [&](const std::string& bytes) {
    base::write_file(t.traces(), bytes, 0600);
    return t.scan_again();
  };
  ASSERT_TRUE(look(good).memoised);
  for (std::size_t i = 0; i < good.size(); i += i < 120 || i >= 4096 ? 1 : 97) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const Closure got = look(bad);
    EXPECT_FALSE(got.memoised) << i;
    ASSERT_EQ(symbolic(got), symbolic(right)) << i;
    EXPECT_FALSE(look(good.substr(0, i)).memoised) << i;
  }
  base::write_file(t.traces(), good, 0644);
  EXPECT_FALSE(t.scan_again().memoised) << "others may read it";
  base::write_file(t.path("elsewhere"), good, 0600);
  t.remove("memo.closures");
  std::filesystem::create_symlink(t.path("elsewhere"), t.traces());
  EXPECT_FALSE(t.scan_again().memoised) << "a planted symlink";
}

TEST(ClosureMemo, KeepsTheNewest64AndWhatOtherProcessesAdded) {
  const Tree tree;
  const std::string file = tree.path("traces");
  const auto key = [](int i) { return base::digest_of(std::string_view(std::to_string(i))); };
  ClosureMemo other(file);
  other.add(key(1000), "of another process");
  for (int i = 0; i < 70; ++i) {
    ClosureMemo memo(file);
    memo.add(key(i), "trace " + std::to_string(i));
    memo.save();
  }
  other.save();
  ClosureMemo memo(file);
  EXPECT_EQ(*memo.find(key(1000)), "of another process");
  EXPECT_EQ(*memo.find(key(69)), "trace 69");
  EXPECT_EQ(*memo.find(key(7)), "trace 7");
  EXPECT_EQ(memo.find(key(6)), nullptr);
  struct stat st;
  ASSERT_EQ(::stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777u, 0600u);
}

}  // namespace
}  // namespace kiln::source
