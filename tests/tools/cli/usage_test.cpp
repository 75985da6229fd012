// Flags, help, errors and exit codes that need no compiler.
#include "support/places.hpp"
#include "tools/kiln_process.hpp"
#include "tools/schema.hpp"

namespace kiln::test {
namespace {

using Usage = KilnCommand;

constexpr const char* kCommands[] = {"templates", "import", "lint",       "compile", "run",    "prewarm",
                                     "ls",        "show",   "why",        "diff",    "stats",  "top",
                                     "report",    "verify", "audit",      "gc",      "clear",  "bundle",
                                     "doctor",    "man",    "completion", "tune",    "caches", "wrap"};
/// Commands that only have subcommands.
bool is_group(const std::string& command) { return command == "bundle" || command == "caches"; }
constexpr const char* kCachesCommands[] = {"ls", "stats", "clear", "capture", "restore", "why"};
constexpr const char* kBundleCommands[] = {"export", "import", "verify", "diff", "sign", "keygen"};

TEST_F(Usage, EverySubcommandExplainsItself) {
  for (const char* command : kCommands) {
    const Finished r = kiln({command, "--help"});
    EXPECT_EQ(r.status, 0) << command;
    EXPECT_NE(r.out.find(std::string("Usage: kiln ") + command), std::string::npos) << r.out;
    if (is_group(command)) continue;  // only their subcommands have them
    for (const char* flag : {"--cache-dir", "--template-path", "--arch", "--log-level", "--json", "--help"}) {
      EXPECT_NE(r.out.find(flag), std::string::npos) << command << ' ' << flag;
    }
    EXPECT_EQ(r.err, "") << command;
  }
}

TEST_F(Usage, HelpListsEverySubcommand) {
  const Finished r = kiln({"--help"});
  EXPECT_EQ(r.status, 0);
  for (const char* command : kCommands) EXPECT_NE(r.out.find(command), std::string::npos) << command;
}

TEST_F(Usage, NothingListsAHiddenCommand) {
  for (const char* hidden : {"__complete", "__hold-lock", "__verify-store"}) {
    for (const Arguments& list : {Arguments{"--help"}, Arguments{"man"}, Arguments{"__complete", "_"}})
      EXPECT_EQ(kiln(list).out.find(hidden), std::string::npos) << list.front() << ' ' << hidden;
  }
  const Finished r = kiln({"__hold-lock", "gate"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("unknown subcommand '__hold-lock'; there are: templates"), std::string::npos) << r.err;
}

TEST_F(Usage, EveryCommandOfACommandExplainsItself) {
  for (const std::string command : kBundleCommands) {
    const Finished r = kiln({"bundle", command, "--help"});
    EXPECT_EQ(r.status, 0) << command;
    EXPECT_NE(r.out.find("Usage: kiln bundle " + command), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("--json"), std::string::npos) << command;
  }
}

TEST_F(Usage, HelpIsACommandToo) {
  EXPECT_EQ(kiln({"help", "ls"}).out, kiln({"ls", "--help"}).out);
  EXPECT_EQ(kiln({"help", "bundle", "export"}).out, kiln({"bundle", "export", "--help"}).out);
  EXPECT_EQ(kiln({"help"}).out, kiln({"--help"}).out);
}

TEST_F(Usage, EveryCommandHasASchemaOfItsOutput) {
  const auto has = [](const std::string& command) {
    const auto content =
        base::read_file(std::string(places::kSourceDirectory) + "/docs/schema/" + command + ".json");
    return content && nlohmann::json::parse(content->bytes).value("$id", "") == "kiln." + command + "/1";
  };
  for (const std::string command : kCommands) EXPECT_TRUE(is_group(command) || has(command)) << command;
  for (const std::string command : kBundleCommands) EXPECT_TRUE(has("bundle-" + command)) << command;
  for (const std::string command : kCachesCommands) EXPECT_TRUE(has("caches-" + command)) << command;
}

TEST_F(Usage, VersionIsOneLineOnStdout) {
  const Finished r = kiln({"--version"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.rfind("kiln ", 0), 0u) << r.out;
}

TEST_F(Usage, VersionAsJsonNamesReleaseBuildAndFormats) {
  const Finished r = kiln({"--version", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  const nlohmann::json version = nlohmann::json::parse(r.out);
  EXPECT_EQ(breach_of_schema(version), "");
  EXPECT_EQ("kiln " + version.value("version", "") + "\n", kiln({"--version"}).out);
  EXPECT_NE(version.value("revision", ""), "");
  EXPECT_EQ(version.value("key_schema", 0), 2);
  EXPECT_EQ(kiln({"--json", "--version"}).out, r.out);
}

TEST_F(Usage, NoSubcommandShowsHelpOnStderr) {
  const Finished r = kiln({});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("Compile:\n"), std::string::npos);
}

TEST_F(Usage, ArchNamesAGpuOrAGeneration) {
  const auto arch_of = [&](const std::string& named) {
    return kiln({"why", "scale", "N=1", "--arch", named, "--json"}).json()["arch"];
  };
  EXPECT_EQ(arch_of("H100"), "sm_90a");
  EXPECT_EQ(arch_of("hopper"), "sm_90a");
  EXPECT_EQ(arch_of("rtx-4080"), "sm_89");
  const auto listed = kiln({"ls", "--arch", "ampere", "--json"}).json();
  EXPECT_EQ(listed["filters"]["archs"], nlohmann::json::parse(R"(["sm_80", "sm_86"])"));
  const Finished help = kiln({"compile", "--help"});
  EXPECT_NE(help.out.find("H100 or hopper"), std::string::npos) << help.out;
}

struct BadInput {
  const char* name;
  Arguments arguments;
  std::vector<std::string> says;
};
[[maybe_unused]] void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }
class Refuses : public KilnCommand, public ::testing::WithParamInterface<BadInput> {};

TEST_P(Refuses, WithExitCodeTwoAndTheNearestName) {
  const Finished r = kiln(GetParam().arguments);
  EXPECT_EQ(r.status, 2) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err.rfind("kiln: error: ", 0), 0u) << r.err;
  for (const std::string& text : GetParam().says)
    EXPECT_NE(r.err.find(text), std::string::npos) << text << " in: " << r.err;
}

const BadInput kBadInputs[] = {
    {"UnknownSubcommand", {"compil"}, {"unknown subcommand 'compil'", "'compile'"}},
    {"FarOffSubcommand", {"frobnicate"}, {"unknown subcommand 'frobnicate'", "prewarm", "--version"}},
    {"ListIsLs", {"list"}, {"unknown subcommand 'list'; did you mean 'ls'?"}},
    {"VersionIsAFlag", {"version"}, {"unknown subcommand 'version'; did you mean '--version'?"}},
    {"VersionBesideATypo", {"--version", "--josn"}, {"--version", "'--josn'", "--json"}},
    {"AnEmptyArch", {"compile", "scale", "N=1", "--arch", ""}, {"--arch", "empty"}},
    {"AnArchThatIsNone",
     {"compile", "scale", "N=1", "--arch", "H1000"},
     {"--arch", "unknown arch 'H1000'", "GPU", "hopper", "H100"}},
    {"AListOfArchsThatHasNone",
     {"prewarm", "--check", "--arch", "sm_90,hoper"},
     {"--arch", "unknown arch 'hoper'", "hopper"}},
    {"AGenerationWhereOneArchIsMeant",
     {"compile", "scale", "N=1", "--arch", "blackwell"},
     {"'blackwell' names 4 architectures", "sm_100a", "sm_121a"}},
    {"HelpOfVersion", {"help", "version"}, {"did you mean '--version'?"}},
    {"HelpOfNothingNear", {"help", "frobnicate"}, {"unknown subcommand 'frobnicate'", "--version"}},
    {"ListingAnUnknownTemplate", {"ls", "-t", "scal"}, {"'scal'", "no entry of one is cached", "'scale'"}},
    {"ListingATemplateThatIsNowhereNear", {"ls", "-t", "nosuch"}, {"'nosuch'", "kiln templates"}},
    {"TemplatePathThatIsNotThere",
     {"templates", "--template-path", "/nonexistent/here"},
     {"--template-path: '/nonexistent/here' is no directory"}},
    {"TemplateInsteadOfAPlan",
     {"prewarm", "scale"},
     {"'scale' is a template", "kiln compile scale", "template = \"scale\""}},
    {"MaxSizeOfNothing", {"gc", "--max-size", "0"}, {"--max-size: '0'", "more than 0"}},
    {"MemoryOfNothing", {"prewarm", "--memory", "0"}, {"--memory: '0'", "more than 0"}},
    {"UnknownSubcommandOfASubcommand",
     {"bundle", "exprot"},
     {"unknown subcommand 'exprot'", "'export'", "kiln bundle --help"}},
    {"UnknownFlagOfASubcommandsSubcommand",
     {"bundle", "import", "x", "--require-sgnature", "y"},
     {"'--require-sgnature'", "'--require-signature'"}},
    {"UnknownFlag", {"ls", "--jso"}, {"unknown flag '--jso'", "'--json'"}},
    {"UnknownFlagWithValue", {"compile", "scale", "--outputt=x"}, {"unknown flag '--outputt'", "'--output'"}},
    {"HelpOfNothing", {"help", "lss"}, {"unknown subcommand 'lss'", "'ls'"}},
    {"HelpOfNothingInASubcommand", {"help", "bundle", "exprot"}, {"unknown subcommand 'exprot'", "'export'"}},
    {"ManOfNothing", {"man", "bundle", "exprot"}, {"no command 'bundle exprot'", "'export'"}},
    {"UnknownOrder", {"ls", "--sort", "siez"}, {"siez", "template, size, age"}},
    {"LimitOfNothing", {"ls", "-n", "0"}, {"--limit"}},
    {"UnexpectedArgument", {"verify", "foo"}, {"unexpected argument 'foo'"}},
    {"FilterWithoutValue", {"ls", "foo"}, {"'foo' is no parameter", "NAME=VALUE"}},
    {"NoSubcommandOfASubcommand", {"bundle"}, {"kiln bundle --help"}},
    {"MissingTemplate", {"compile"}, {"template is required"}},
    {"MissingKey", {"show"}, {"key is required"}},
    {"UnknownTemplate", {"compile", "scal", "N=1"}, {"'scal'", "did you mean 'scale'"}},
    {"UnknownTemplateToExplain", {"templates", "scal"}, {"'scal'", "did you mean 'scale'"}},
    {"UnknownParameter",
     {"compile", "scale", "N=1", "FLAGG=true"},
     {"'scale'", "'FLAGG'", "did you mean 'FLAG'"}},
    {"RepeatedParameter", {"compile", "scale", "N=1", "N=2"}, {"'N'"}},
    {"MissingParameter", {"compile", "scale"}, {"'scale'", "'N'"}},
    {"ValueOutOfRange", {"compile", "scale", "N=65"}, {"'N'", "65", "64"}},
    {"ValueOfWrongKind", {"compile", "scale", "N=many"}, {"'N'", "many"}},
    {"NoAssignment", {"compile", "scale", "N"}, {"N"}},
    {"BrokenRequirement", {"compile", "scale", "N=13"}, {"N = 13 is unlucky"}},
    {"UnknownArch", {"compile", "scale", "N=1", "--arch", "gfx90a"}, {"gfx90a"}},
    {"ArchTheTemplateHasNoCodeFor", {"compile", "picky", "N=1", "--arch", "sm_80"}, {"sm_80"}},
    {"UnknownKind", {"compile", "scale", "N=1", "--emit", "elf"}, {"elf", "cubin, ptx, sass"}},
    {"TwoKindsInOneFile",
     {"compile", "scale", "N=1", "--emit", "ptx,cubin", "-o", "x"},
     {"-o names one file"}},
    {"RepeatOfNothing", {"compile", "scale", "N=1", "--repeat", "0"}, {"--repeat"}},
    {"BadLogLevel", {"ls", "--log-level", "loud"}, {"loud"}},
    {"BadJobs", {"prewarm", "-j", "0"}, {"--jobs"}},
    {"NoKey", {"show", "xyz"}, {"'xyz' is no key"}},
};
INSTANTIATE_TEST_SUITE_P(Input, Refuses, ::testing::ValuesIn(kBadInputs),
                         [](const auto& input) { return input.param.name; });

TEST_F(Usage, ErrorsAreAnObjectUnderJson) {
  const Finished r = kiln({"compile", "scal", "--json"});
  EXPECT_EQ(r.status, 2);
  const auto json = r.json();
  EXPECT_EQ(json["schema"], "kiln.compile/1");
  EXPECT_EQ(json["error"]["code"], "unknown_template");
  EXPECT_NE(json["error"]["message"].get<std::string>().find("scale"), std::string::npos);
  EXPECT_EQ(r.err.rfind("kiln: error: ", 0), 0u);
}

TEST_F(Usage, ParseErrorsAreAnObjectUnderJsonToo) {
  const Finished r = kiln({"ls", "--bogus", "--json"});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.json()["error"]["code"], "invalid_argument");
  EXPECT_EQ(r.json()["schema"], "kiln.ls/1");
}

TEST_F(Usage, CommonFlagsAreTakenBeforeAndAfterTheSubcommand) {
  const std::string other = path("other");
  EXPECT_EQ(kiln({"--cache-dir", other, "--json", "ls"}).json()["directory"], other);
  EXPECT_EQ(kiln({"ls", "--cache-dir", other, "--json"}).json()["directory"], other);
}

TEST_F(Usage, FlagsBeatTheEnvironment) {
  EXPECT_EQ(kiln({"ls", "--json", "--cache-dir", path("flag")}, {{"KILN_CACHE_DIR", path("env")}})
                .json()["directory"],
            path("flag"));
}

TEST_F(Usage, UnknownEnvironmentVariablesAreWarnedAboutOnStderr) {
  const Finished r = kiln({"ls"}, {{"KILN_CACHEDIR", "x"}});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.err.find("KILN_CACHEDIR"), std::string::npos);
  EXPECT_EQ(kiln({"ls", "--log-level", "error"}, {{"KILN_CACHEDIR", "x"}}).err, "");
}

TEST_F(Usage, WarnIsALevelAsItIsAMode) {
  const Finished r = kiln({"ls"}, {{"KILN_LOG", "warn"}, {"KILN_CACHEDIR", "x"}});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err.find("KILN_LOG"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("KILN_CACHEDIR"), std::string::npos) << "warnings are shown: " << r.err;
  EXPECT_EQ(kiln({"ls", "--log-level", "warn"}).status, 0);
  EXPECT_NE(kiln({"ls"}, {{"KILN_LOG", "wran"}}).err.find("warning (or warn)"), std::string::npos);
}

TEST_F(Usage, TemplatesThatAreKnownAndNotCachedAreListedAsNothing) {
  EXPECT_EQ(kiln({"ls", "-t", "scale"}).status, 0);
  EXPECT_EQ(kiln({"ls", "-t", "scale", "--json"}).json()["count"], 0);
  EXPECT_EQ(kiln({"ls", "-t", "rms_norm"}).status, 0) << "a shipped one";
  EXPECT_EQ(kiln({"ls", "-t", "nosuch", "--json"}).json()["error"]["code"], "unknown_template");
}

TEST_F(Usage, TwoTemplatesOfOneNameAreAnError) {
  write("templates/rms_norm.toml", kScaleManifest);
  const Finished r = kiln({"templates", "rms_norm"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("two templates are called 'rms_norm'"), std::string::npos) << r.err;
}

TEST_F(Usage, AWrongSizeInTheEnvironmentStillNamesItsVariable) {
  const Finished r = kiln({"gc"}, {{"KILN_CACHE_MAX_SIZE", "0"}});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("KILN_CACHE_MAX_SIZE"), std::string::npos) << r.err;
}

TEST_F(Usage, WrongConfigurationNamesItsOrigin) {
  const Finished r = kiln({"ls"}, {{"KILN_JOBS", "many"}});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("KILN_JOBS"), std::string::npos) << r.err;
}

TEST_F(Usage, ATemplateMayBeCalledLikeASubcommand) {
  const Finished r = kiln({"templates", "ls"});
  EXPECT_NE(r.err.find("'ls'"), std::string::npos) << r.err;
  EXPECT_EQ(r.status, 2);
}

TEST_F(Usage, TemplatesListsTheUsersAndTheShippedOnes) {
  const Finished r = kiln({"templates"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* text : {"scale", "N [FLAG]", "multiplies by N", "picky"})
    EXPECT_NE(r.out.find(text), std::string::npos) << r.out;
  const auto json = kiln({"templates", "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.templates/1");
  bool found = false;
  for (const auto& t : json["templates"]) {
    if (t["name"] != "scale") continue;
    found = true;
    EXPECT_EQ(t["prewarm"], 3);
    EXPECT_EQ(t["parameters"][0]["name"], "N");
    EXPECT_EQ(t["parameters"][0]["range"], (nlohmann::json{1, 64}));
    EXPECT_EQ(t["parameters"][0]["required"], true);
    EXPECT_EQ(t["parameters"][1]["default"], "false");
  }
  EXPECT_TRUE(found);
}

TEST_F(Usage, TemplatesExplainsOneWhole) {
  const Finished r = kiln({"templates", "scale"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* text : {"y = N * x", "int: 1..64, required", "the factor", "default: false", "ptr<f32>",
                           "N != 13", "ceil_div(n, 256)", "3 specialisations"}) {
    EXPECT_NE(r.out.find(text), std::string::npos) << text << " in:\n" << r.out;
  }
  const auto json = kiln({"templates", "scale", "--json"}).json();
  EXPECT_EQ(json["formula"], "y = N * x");
  EXPECT_EQ(json["arguments"][0]["access"], "readwrite");
  EXPECT_EQ(json["requirements"][0]["checked"], "compile");
  EXPECT_EQ(json["launch"]["block"][0], "256");
}

TEST_F(Usage, InternalTemplatesAreHiddenUnlessAll) {
  std::string manifest = kScaleManifest;
  manifest.replace(manifest.find("name = \"scale\""), 14, "internal = true\nname = \"hidden\"");
  write("templates/hidden.toml", manifest);
  EXPECT_EQ(kiln({"templates"}).out.find("\nhidden"), std::string::npos);
  EXPECT_NE(kiln({"templates", "--all"}).out.find("\nhidden"), std::string::npos);
}

TEST_F(Usage, OneBrokenManifestHidesNoOther) {
  write("templates/broken.toml", "format = ");
  const Finished r = kiln({"templates"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.out.find("scale"), std::string::npos);
  EXPECT_NE(r.err.find("broken.toml:1"), std::string::npos) << r.err;
}

TEST_F(Usage, NoCompilerIsExitOneAndSaysWhereItLooked) {
  const Finished r = kiln({"compile", "scale", "N=1", "--json"}, {{"KILN_CUDA_HOME", "/nonexistent/cuda"}});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.json()["error"]["code"], "no_compiler");
  EXPECT_NE(r.err.find("/nonexistent/cuda"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace kiln::test
