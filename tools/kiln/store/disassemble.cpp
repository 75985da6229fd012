#include "tools/kiln/store/disassemble.hpp"

#include <cstdlib>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "toolchain/ptx.hpp"
#include "tools/kiln/cli/child_process.hpp"

namespace kiln::cli {

std::string disassemble(const std::string& cubin, const toolchain::Toolkit& toolkit,
                        const std::string& cuda_home) {
  if (toolchain::is_ptx(cubin))
    throw Error(Errc::invalid_argument,
                "the image is PTX, which has no machine code until a driver translates it; --ptx prints it");
  std::vector<std::string> directories;
  const auto add = [&](const char* root) {
    if (root && *root) directories.push_back(std::string(root) + "/bin");
  };
  add(cuda_home.c_str());
  add(std::getenv("CUDA_HOME"));
  if (!toolkit.compiler.library.empty()) add((base::directory_of(toolkit.compiler.library) + "/..").c_str());
  add("/usr/local/cuda");

  const base::TempDir scratch("kiln-sass");
  const std::string file = scratch.path() + "/image.cubin";
  base::write_file(file, cubin, 0600);
  std::vector<std::string> command;
  if (const std::string tool = find_program("nvdisasm", directories); !tool.empty())
    command = {tool, file};
  else if (const std::string other = find_program("cuobjdump", directories); !other.empty())
    command = {other, "-sass", file};
  else {
    for (std::string& directory : directories) directory = base::normalized(directory);
    throw Error(Errc::io,
                "SASS needs nvdisasm or cuobjdump, and neither is in PATH or in " +
                    base::join(directories, ", ") +
                    "; they come with the CUDA toolkit (packages cuda-nvdisasm and cuda-cuobjdump)");
  }
  ChildProcess child(command);
  child.close_input();
  std::string text = child.read_all();
  if (const int status = child.wait(); status != 0) {
    throw Error(Errc::io, command.front() + " failed with status " + std::to_string(status));
  }
  return text;
}

}  // namespace kiln::cli
