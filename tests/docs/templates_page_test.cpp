// docs/reference/templates.md is the output of `kiln templates --markdown` for the shipped manifests.
#include "docs/run_commands.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"

namespace kiln::test {
namespace {

using TemplatesPage = KilnCompiler;

TEST_F(TemplatesPage, IsWhatTheShippedManifestsSay) {
  const Finished done = kiln({"templates", "--markdown"}, {{"KILN_TEMPLATE_PATH", ""}});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(done.out == read_source("docs/reference/templates.md"))
      << "a manifest has changed. Run in the source tree:\n  KILN_TEMPLATE_PATH= " << places::kCommand
      << " templates --markdown > docs/reference/templates.md";
}

TEST_F(TemplatesPage, HasASectionForEachTemplateThatIsNotInternal) {
  const std::string page = read_source("docs/reference/templates.md");
  const auto listed = kiln({"templates", "--all", "--json"}, {{"KILN_TEMPLATE_PATH", ""}}).json();
  for (const auto& one : listed.at("templates")) {
    const std::string name = one.at("name");
    EXPECT_EQ(page.find("\n## " + name + '\n') != page.npos, !one.at("internal")) << name;
  }
}

TEST_F(TemplatesPage, DoctorOnTheCommandsPageCountsEachTemplate) {
  const auto listed = kiln({"templates", "--all", "--json"}, {{"KILN_TEMPLATE_PATH", ""}}).json();
  const std::string line =
      "\nok       templates   " + std::to_string(listed.at("templates").size()) + " templates in ";
  EXPECT_NE(read_source("docs/reference/command.md").find(line), std::string::npos) << line;
}

TEST_F(TemplatesPage, HasACommandForEachThatRunsAsItStands) {
  KILN_NIGHTLY_ONLY();
  // The fake driver computes nothing. The test checks data for every argument, a launch and a cost.
  const auto commands = run_commands(read_source("docs/reference/templates.md"));
  const auto listed = kiln({"templates", "--json"}, {{"KILN_TEMPLATE_PATH", ""}}).json();
  EXPECT_EQ(commands.size(), listed.at("templates").size());
  for (Arguments words : commands) {
    words.erase(std::remove(words.begin(), words.end(), "--check"), words.end());
    words.push_back("--json");
    const Finished done = kiln(words, {{"KILN_TEMPLATE_PATH", ""}, {"KILN_LIBCUDA", places::kFakeCuda}});
    EXPECT_EQ(done.status, 0) << words[1] << '\n' << done.err;
    EXPECT_TRUE(done.json().contains("bench")) << words[1];
  }
}

TEST_F(TemplatesPage, SaysEverythingOfATemplate) {
  write("templates/all.cu", "");
  write("templates/all.reference.cu", "");
  write("templates/all.toml", R"(format = 1
[template]
name = "all"
source = "all.cu"
instantiate = "all<{T}, {N}>"
summary = "does *all* of a < b | c"
formula = "y = |x|"
arch = { min = "sm_80" }
tolerance = { bf16 = 4e-3 }
[param.T]
kind = "dtype"
values = ["bf16", "i32"]
doc = "of out_x and _y"
[param.N]
kind = "int"
range = [1, 64]
default = 8
tune = [4, 8]
[derive]
TWICE = "2 * N"
[[require]]
expr = "N < 60 || T == i32"
message = "N = {N}"
[[require]]
expr = "n >= 0"
message = "n"
[[arg]]
name = "out"
type = "ptr<T>"
access = "write"
shape = ["n", "N"]
stride = ["TWICE", "1"]
align = "4"
doc = "the result"
[[arg]]
name = "n"
type = "i32"
value = 64
[[arg]]
name = "w"
type = "ptr<f32>"
shape = ["n"]
optional = true
exists = "N > 8"
[runtime]
blocks = { value = 3, doc = "of the grid" }
[launch]
grid = ["blocks", "2"]
block = ["32"]
cluster = ["1"]
smem = "N * 4"
pdl = true
[reference]
source = "all.reference.cu"
instantiate = "all_reference"
grid = ["1"]
block = ["1"]
[cost]
read = "0"
write = "n * N"
flops = "7"
[limits]
max_spill_bytes = 0
compile_seconds = 3
[[prewarm]]
T = ["bf16", "i32"]
N = 16
)");
  const Finished done = kiln({"templates", "all", "--markdown"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, R"(## all

does \*all\* of a &lt; b | c.

    y = |x|

Runs on sm_80 and later. Name expression: `all<{T}, {N}>`.

    kiln run all T=bf16 N=16 --check --bench

| parameter | kind | allowed | default | tuned over | what it is |
|---|---|---|---|---|---|
| `T` | dtype | bf16 i32 | required | | of out_x and \_y |
| `N` | int | 1..64 | `8` | 4 8 | |

Candidates of `kiln tune` give the same bits.

Derived from them: `TWICE` = `2 * N`.

| argument | type | access | shape | stride | aligned to | optional | value | what it is |
|---|---|---|---|---|---|---|---|---|
| `out` | `ptr<T>` | written | `n`, `N` | `TWICE`, `1` | `4` | | | the result |
| `n` | `i32` | | | | | | `64` | |
| `w` | `ptr<f32>` | read | `n` | | | yes | if `N > 8`, else null | |
| `blocks` | run-time value | | | | | | `3` | of the grid |

| checked before | must hold | or else |
|---|---|---|
| compiling | `N < 60 \|\| T == i32` | N = {N} |
| each launch | `n >= 0` | n |

- Launch: grid `blocks` x `2`, block `32`, cluster `1`, `N * 4` bytes of dynamic shared memory; programmatic dependent launch.
- Cost of a launch: reads `0` bytes, writes `n * N` bytes, `7` operations.
- Tolerance, relative RMS against the reference in double: bf16 4e-03; other types and integers exact.
- Limits: at most 0 spilled bytes, 3 s to compile.
- Ships warm, 2 specialisations: `T=bf16,i32 N=16`.
)");
}

TEST_F(TemplatesPage, IsNotWrittenWithoutOneThatIsBroken) {
  EXPECT_EQ(kiln({"templates", "--markdown"}).status, 0);
  write("templates/scale.toml", "format = 1\n[template]\nname = \"scale\"\nnonsense = 1\n");
  const Finished done = kiln({"templates", "--markdown"});
  EXPECT_EQ(done.status, 1);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("nonsense"), std::string::npos) << done.err;
}

TEST_F(TemplatesPage, SaysWhatAHostPlanIsMadeOf) {
  write("templates/planned.cu", "");
  write("templates/planned.toml", R"(format = 1
[template]
name = "planned"
source = "planned.cu"
instantiate = "planned<{N}>"
[param.N]
kind = "int"
range = [1, 64]
[[arg]]
name = "plan"
type = "ptr<i32>"
access = "readwrite"
[[arg]]
name = "partial"
type = "ptr<f32>"
access = "write"
shape = ["2 * workers * N"]
[[arg]]
name = "workers"
type = "i32"
value = "dev.sms"
[work_list]
kind = "attention"
argument = "plan"
workspace = "partial"
workers = "workers"
tile_rows = "N"
tile_kv = 64
group = 1
[work_list.run]
requests = 3
kv_tokens = "requests * 100"
kv_heads = 2
[launch]
grid = ["workers"]
block = ["32"]
)");
  const std::string page = kiln({"templates", "planned", "--markdown"}).out;
  EXPECT_NE(
      page.find(
          "| `kv_tokens` | a value of `kiln run` only | | | `requests * 100` | tokens of k and v, of all "
          "requests together |"),
      std::string::npos)
      << page;
  EXPECT_NE(
      page.find("- Work list of kind attention, made on the host before the launch: it lies in `plan`, its "
                "partial results in `partial`, for `workers` blocks; `tile_rows` = `N`, `tile_kv` = `64`, "
                "`group` = `1`, `causal` = `0`, `window` = `0`, `tile_cost` = `1`, `min_units` = `4`, "
                "`tiles_together` = `0`, `heads_together` = `0`, `resident_kv` = `0`.\n"),
      std::string::npos)
      << page;
  const std::string text = kiln({"templates", "planned"}).out;
  EXPECT_NE(text.find("the work list in plan, partial results in partial, blocks of the grid in workers"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("value that only kiln run uses"), std::string::npos) << text;
  const auto plan = kiln({"templates", "planned", "--json"}).json().at("plan");
  EXPECT_EQ(plan.at("kernel").at("tile_rows"), "N");
  EXPECT_EQ(plan.at("workspace"), "partial");
  EXPECT_EQ(plan.at("run").at("window_left"), "-1");
  EXPECT_EQ(plan.at("run_values").size(), 3u);
}

}  // namespace
}  // namespace kiln::test
