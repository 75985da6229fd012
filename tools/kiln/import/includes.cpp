#include "tools/kiln/import/includes.hpp"

#include <algorithm>
#include <set>

#include "base/file.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kMostFiles = 300, kMostBytes = std::size_t{4} << 20;

struct Wanted {
  std::string name, beside;
};

}  // namespace

std::vector<std::string> add_includes(CudaSource& source, const std::string& file,
                                      const std::vector<std::string>& directories, const std::string& kernel,
                                      const Macros& macros) {
  std::vector<std::string> elsewhere;
  std::vector<Wanted> queue;
  for (const std::string& name : source.includes) queue.push_back({name, base::directory_of(file)});
  std::set<std::string> seen{base::normalized(file)};
  for (std::size_t i = 0; i < queue.size() && seen.size() < kMostFiles; ++i) {
    std::vector<std::string> places{queue[i].beside};
    places.insert(places.end(), directories.begin(), directories.end());
    for (const std::string& place : places) {
      const std::string path = base::normalized(place + '/' + queue[i].name);
      if (seen.contains(path)) break;
      const auto content = base::read_file(path, kMostBytes);
      if (!content) continue;
      seen.insert(path);
      CudaSource header = read_cuda(content->bytes, macros);
      for (const KernelDeclaration* found : kernels_named(header, kernel))
        elsewhere.push_back(found->qualified() + " in " + path + ':' + std::to_string(found->line));
      source.enums.merge(header.enums);
      source.aliases.merge(header.aliases);
      source.kernel_macros.insert(source.kernel_macros.end(), header.kernel_macros.begin(),
                                  header.kernel_macros.end());
      for (const std::string& name : header.includes) {
        queue.push_back({name, base::directory_of(path)});
        if (std::find(source.includes.begin(), source.includes.end(), name) == source.includes.end())
          source.includes.push_back(name);
      }
      break;
    }
  }
  return elsewhere;
}

}  // namespace kiln::cli
