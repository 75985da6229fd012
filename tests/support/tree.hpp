// A temporary directory that tests fill with templates and headers.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.hpp"

namespace kiln::testing {

class Tree {
 public:
  Tree() : directory_("kiln-test-") {}
  const std::string& path() const { return directory_.path(); }
  std::string at(const std::string& relative) const { return path() + '/' + relative; }
  /// Writes a file and creates its directories. Unless `fresh`, the file's time is set back by a
  /// minute, so that the file counts as settled.
  std::string write(const std::string& relative, const std::string& text, bool fresh = false) const {
    const std::string file = at(relative);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file, std::ios::binary) << text;
    if (!fresh)
      std::filesystem::last_write_time(file,
                                       std::filesystem::last_write_time(file) - std::chrono::minutes(1));
    return file;
  }

 private:
  base::TempDir directory_;
};

/// A manifest for small_source: one dtype and one int parameter, arguments out and n.
inline std::string small_manifest(const std::string& name, const std::string& extra_compile = "",
                                  const std::string& more = "") {
  return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
         ".cu\"\ninstantiate = \"scale<{T}, {N}>\"\n[compile]\n" + extra_compile +
         "\n[param.T]\nkind = \"dtype\"\nvalues = [\"f32\", \"i32\"]\nspelling = \"cuda\"\n"
         "[param.N]\nkind = \"int\"\nrange = [1, 1024]\ndefault = 7\n"
         "[[arg]]\nname = \"out\"\ntype = \"ptr<T>\"\naccess = \"write\"\nshape = [\"n\"]\n"
         "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 64\n"
         "[launch]\ngrid = [\"ceil_div(n, 64)\"]\nblock = [\"64\"]\n" +
         more;
}

inline std::string small_source(const std::string& includes = "",
                                const std::string& body = "out[i] = T(N);") {
  return includes +
         "\ntemplate <class T, int N> __global__ void scale(T* out, int n) {\n  int i = blockIdx.x * 64 + "
         "threadIdx.x;\n  if (i < n) { " +
         body + " }\n}\n";
}

}  // namespace kiln::testing
