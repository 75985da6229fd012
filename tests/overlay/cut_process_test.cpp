// Files that nvcc compiles, with launchers and other host code, compile with host_code = "cut".
#include <filesystem>

#include "toolchain/elf.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using nlohmann::json;

const std::string kAxpy =
    "template <class T>\n__global__ void axpy(T* y, const T* x, T a, int n) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] += scaled(x[i], a);\n}\n";
const std::string kScaled = "template <class T>\n__device__ T scaled(T x, T a) { return a * x; }\n";

/// The header of the kernel, with host code before it and after it.
const std::string kHeader =
    "#pragma once\n#include <cuda_runtime.h>\n#include <mutex>\n#include <string>\n#include <vector>\n"
    "#define CHECK(call) do { if ((call) != cudaSuccess) throw std::runtime_error(cudaGetErrorString(call)); "
    "} while (0)\n"
    "namespace lib {\n"
    "class Context {\n public:\n  static Context& instance() { static Context context; return context; }\n"
    "  std::vector<void*> buffers;\n  std::mutex mutex;\n};\n" +
    kScaled +
    "template <class T>\nvoid upload(const std::vector<T>& host, T** device) {\n"
    "  CHECK(cudaMalloc(device, host.size() * sizeof(T)));\n"
    "  CHECK(cudaMemcpy(*device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));\n}\n"
    "std::ostream& operator<<(std::ostream& out, const Context& context);\n"
    "}  // namespace lib\n";

const std::string kSource = "#include \"axpy.cuh\"\n#include <iostream>\nnamespace lib {\n" + kAxpy +
                            "__global__ void other(Unknown* a) { a->launch(); }\n"
                            "template <class T>\nvoid axpy(std::vector<T>& y, const std::vector<T>& x, T a) "
                            "{\n  T *dx, *dy;\n  upload(x, &dx);\n"
                            "  upload(y, &dy);\n  axpy<T><<<(y.size() + 127) / 128, 128>>>(dy, dx, a, "
                            "int(y.size()));\n  CHECK(cudaDeviceSynchronize());\n}\n"
                            "template __global__ void axpy<float>(float*, const float*, float, int);\n"
                            "template void axpy<double>(std::vector<double>&, const std::vector<double>&, "
                            "double);\n}  // namespace lib\n"
                            "int main() {\n  std::vector<float> y(4), x(4);\n  lib::axpy(y, x, 2.0f);\n  "
                            "std::cout << y[0] << std::endl;\n}\n";

class HostCodeIsCut : public KilnCompiler {
 protected:
  static std::string manifest(const std::string& name, const std::string& compile) {
    return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
           ".cu\"\ninstantiate = \"lib::axpy<float>\"\n[compile]\nhost_headers = \"shim\"\n" + compile +
           "[[arg]]\nname = \"y\"\ntype = \"ptr<f32>\"\n[[arg]]\nname = \"x\"\ntype = \"ptr<f32>\"\n"
           "[[arg]]\nname = \"a\"\ntype = \"f32\"\n[[arg]]\nname = \"n\"\ntype = \"i32\"\n"
           "[launch]\ngrid = [1]\nblock = [128]\n";
  }
  void write_axpy(const std::string& folder, const std::string& source = kSource) const {
    std::filesystem::create_directories(path(folder));
    write(folder + "/axpy.toml", manifest("axpy", "host_code = \"cut\"\n"));
    write(folder + "/axpy.cu", source);
    write(folder + "/axpy.cuh", kHeader);
  }
  Finished run(const std::string& name, const std::string& folder, const std::string& cache = "cache") {
    return kiln({"compile", name, "--arch", "sm_90a", "--template-path", path(folder), "--cache-dir",
                 path(cache), "--json"});
  }
  json compile(const std::string& name, const std::string& folder, const std::string& cache = "cache") {
    const Finished done = run(name, folder, cache);
    EXPECT_EQ(done.status, 0) << done.err << done.out;
    const json out = done.json();
    EXPECT_TRUE(out.at("unpublishable").is_null()) << out.dump();
    return out;
  }
  std::string image(const json& compiled, const std::string& cache = "cache") {
    kiln({"show", compiled.value("key", ""), "--cache-dir", path(cache), "--image", path("image.cubin")});
    const auto file = base::read_file(path("image.cubin"));
    std::filesystem::remove(path("image.cubin"));
    return file ? file->bytes : "";
  }
  std::string text_of(const std::string& name) const {
    const auto file = base::read_file(path(name));
    return file ? file->bytes : "";
  }
  /// The values of a field of the key, as the key text has them.
  std::vector<json> fields(const json& compiled, const std::string& label) {
    const json shown = kiln({"show", compiled.value("key", ""), "--cache-dir", cache(), "--json"}).json();
    std::vector<json> out;
    for (const json& field : shown.at("key_fields"))
      if (field.at("label") == label) out.push_back(field.at("values"));
    return out;
  }
};

/// The machine code of an image's kernels.
std::string machine_code(const std::string& image) {
  const toolchain::Elf elf(std::as_bytes(std::span(image)));
  std::string out;
  for (const toolchain::ElfSection& section : elf.sections()) {
    if (section.name.starts_with(".text."))
      out.append(reinterpret_cast<const char*>(section.bytes.data()), section.bytes.size());
  }
  return out;
}

TEST_F(HostCodeIsCut, AFileWithLaunchersCompilesAndStaysAsItIs) {
  write_axpy("own");
  const json done = compile("axpy", "own");
  EXPECT_EQ(done.value("outcome", ""), "compiled");
  EXPECT_EQ(done.value("name_expression", ""), "lib::axpy<float>");
  EXPECT_EQ(text_of("own/axpy.cu"), kSource);
  EXPECT_EQ(text_of("own/axpy.cuh"), kHeader);
  EXPECT_EQ(fields(done, "host-code"), (std::vector<json>{{"cut (version 5)"}}));
  EXPECT_EQ(compile("axpy", "own").value("outcome", ""), "disk");

  // A file that has only this kernel gives the same machine code.
  std::filesystem::create_directories(path("alone"));
  write("alone/axpy.toml", manifest("axpy", ""));
  write("alone/axpy.cu", "namespace lib {\n" + kScaled + kAxpy + "}\n");
  const json alone = compile("axpy", "alone");
  EXPECT_NE(alone.value("key", ""), done.value("key", ""));
  EXPECT_TRUE(fields(alone, "host-code").empty()) << "keys without host_code are as before";
  const std::string code = machine_code(image(done));
  EXPECT_FALSE(code.empty());
  EXPECT_TRUE(code == machine_code(image(alone)));

  // Whatever is edited in the file, also host code, gives another key and here the same machine code.
  std::string edited = kSource;
  edited.replace(edited.find("y(4), x(4)"), 10, "y(8), x(8)");
  write("own/axpy.cu", edited);
  const json again = compile("axpy", "own");
  EXPECT_EQ(again.value("outcome", ""), "compiled");
  EXPECT_NE(again.value("key", ""), done.value("key", ""));
  EXPECT_TRUE(code == machine_code(image(again)));
}

TEST_F(HostCodeIsCut, KeysAndImagesAreTheSameInAnotherDirectory) {
  write_axpy("own");
  write_axpy("some/other/place");
  const json here = compile("axpy", "own"), there = compile("axpy", "some/other/place", "other-cache");
  EXPECT_EQ(there.value("outcome", ""), "compiled") << "another cache";
  EXPECT_EQ(here.value("key", "-"), there.value("key", "+"));
  const std::string one = image(here), two = image(there, "other-cache");
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(one == two);
}

TEST_F(HostCodeIsCut, AHeaderThatTwoSearchDirectoriesReachIsReadOnce) {
  std::filesystem::create_directories(path("own/include/lib"));
  write("own/include/lib/axpy.cuh", kHeader + "namespace lib { struct Twice { int a; }; }\n");
  write("own/include/lib/rest.cuh", "#pragma once\n#define REST 1\n");
  write("own/include/lib/both.cuh", "#include <lib/axpy.cuh>\n#include <axpy.cuh>\n");
  write("own/axpy.toml",
        manifest("axpy", "host_code = \"cut\"\ninclude_dirs = [\"include\", \"include/lib\"]\n"));
  write("own/axpy.cu",
        "#include <lib/both.cuh>\n#include <axpy.cuh>\n#include \"rest.cuh\"\n#if !__has_include(<rest.cuh>) "
        "|| !REST\n"
        "#error another file\n#endif\nnamespace lib {\n" +
            kAxpy + "__device__ Twice twice;\n}\n");
  EXPECT_EQ(compile("axpy", "own").value("outcome", ""), "compiled");
}

TEST_F(HostCodeIsCut, AFileThatIsOnlyAskedForIsThere) {
  write_axpy("own", "#if __has_include(\"optional.cuh\")\n#define HAS_OPTIONAL 1\n#endif\n" + kSource +
                        "#if HAS_OPTIONAL != 1\n#error optional.cuh is not there\n#endif\n");
  write("own/optional.cuh", "// nobody includes it\n");
  const Finished done = run("axpy", "own");
  EXPECT_EQ(done.status, 0) << done.err;
}

TEST_F(HostCodeIsCut, AnErrorHasTheLineOfTheFile) {
  std::string source = kSource;
  const std::size_t at = source.find("scaled(x[i], a)");
  source.replace(at, 6, "absent");
  write_axpy("own", "void launch() {\n  host();\n}\n" + source);
  const Finished done = run("axpy", "own");
  EXPECT_EQ(done.status, 1) << done.out;
  const auto line = 4 + std::count(kSource.begin(), kSource.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  EXPECT_NE(done.err.find("axpy.cu(" + std::to_string(line) + "): error"), std::string::npos) << done.err;
}

TEST_F(HostCodeIsCut, WhyAndDiffSayHowTheTreatmentDiffers) {
  write_axpy("own");
  const std::string first = compile("axpy", "own").value("key", "");
  write("own/axpy.toml",
        manifest("axpy", "host_code = \"cut\"\nkeep = [\"upload\", \"a\"]\ncut = [\"b\"]\n"));
  const Finished why = kiln(
      {"why", "axpy", "--arch", "sm_90a", "--template-path", path("own"), "--cache-dir", cache(), "--json"});
  EXPECT_EQ(why.status, 3) << why.err;
  const json differs = why.json().at("nearest").at(0).at("differs");
  ASSERT_EQ(differs.size(), 1u) << differs.dump();
  EXPECT_EQ(differs[0].at("field"), "host-code");
  EXPECT_EQ(differs[0].at("says"),
            "the rule for host code is cut (version 5) in the cached entry and cut (version 5, keep upload "
            "a, cut b) here");

  std::filesystem::create_directories(path("plain"));
  write("plain/axpy.toml", manifest("axpy", ""));
  write("plain/axpy.cu", "namespace lib {\n" + kScaled + kAxpy + "}\n");
  const std::string second = compile("axpy", "plain").value("key", "");
  const Finished diff = kiln({"diff", first, second, "--cache-dir", cache()});
  EXPECT_NE(diff.out.find(
                "the rule for host code is cut (version 5) in the first, and there is none in the second"),
            std::string::npos)
      << diff.out;
}

TEST_F(HostCodeIsCut, KeysOfTheManifestAreRefusedWithoutIt) {
  std::filesystem::create_directories(path("own"));
  write("own/axpy.cu", kSource);
  const auto refused = [&](const std::string& compile, const std::string& part) {
    write("own/axpy.toml", manifest("axpy", compile));
    const Finished done = run("axpy", "own");
    EXPECT_NE(done.status, 0) << compile;
    EXPECT_NE((done.err + done.out).find(part), std::string::npos) << done.err << done.out;
  };
  refused("keep = [\"a\"]\n", "has an effect only with host_code = \\\"cut\\\"");
  refused("cut = [\"a\"]\n", "has an effect only with host_code = \\\"cut\\\"");
  refused("empty = [\"a.h\"]\n", "has an effect only with host_code = \\\"cut\\\"");
  refused("host_code = \"keep\"\nkeep = [\"a\"]\n", "has an effect only with host_code = \\\"cut\\\"");
  refused("host_code = \"drop\"\n", "'drop' is unknown; allowed: keep cut cut-unused");
  refused("host_code = \"cut\"\nkeep = [\"lib::a\"]\n",
          "'lib::a' must be the name of a declaration, without namespaces");
  refused("host_code = \"cut\"\nempty = [\"a.h\"]\nreplace = { \"a.h\" = \"b.h\" }\n",
          "'a.h' is already in [compile] replace");
}

TEST_F(HostCodeIsCut, EmptyHeadersAndKeptNamesCompile) {
  std::string source = kSource;
  source.replace(source.find("scaled(x[i], a)"), 0, "CALL(hidden)() * ");
  write_axpy(
      "own",
      "#include <vendor/host_only.h>\n#include \"launch/not_there.h\"\n#define CALL(name) name##_pasted\n"
      "int host_one() { return 1; }\n__device__ int hidden_pasted() { return host_one(); }\n" +
          source);
  const std::string empty = "host_code = \"cut\"\nempty = [\"vendor/host_only.h\", \"launch/not_there.h\"]\n";
  write("own/axpy.toml", manifest("axpy", empty));
  const Finished refused = run("axpy", "own");
  EXPECT_EQ(refused.status, 1) << refused.out;
  EXPECT_NE(refused.err.find("host_one"), std::string::npos) << refused.err;
  write("own/axpy.toml", manifest("axpy", empty + "keep = [\"host_one\"]\n"));
  EXPECT_EQ(compile("axpy", "own").value("outcome", ""), "compiled");
}

}  // namespace
}  // namespace kiln::test
