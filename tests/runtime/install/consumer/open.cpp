// Opens libkiln by its name when it runs, and prints the library's version. The headers alone give the types.
#include <dlfcn.h>

#include <kiln/kiln.h>
#include <cstdio>

int main() {
  void* library = dlopen("libkiln.so.0", RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto version = reinterpret_cast<decltype(&kiln_version)>(dlsym(library, "kiln_version"));
  if (!version) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::puts(version());
}
