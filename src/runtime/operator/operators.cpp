#include "runtime/operator/operators.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

const source::BindSpec* bind_named(const source::Manifest& manifest, std::string_view name) {
  const auto found = std::find_if(manifest.binds.begin(), manifest.binds.end(),
                                  [&](const source::BindSpec& b) { return b.name == name; });
  return found == manifest.binds.end() ? nullptr : &*found;
}

}  // namespace

Operators::Found Operators::find(const std::string& name) {
  // The usual names are found without a look at all directories.
  const auto has = [&](const Found& wanted) {
    try {
      return bind_named(catalog_.open(wanted.of)->manifest, wanted.name) != nullptr;
    } catch (const Error& error) {
      if (error.code() != Errc::unknown_template) throw;
      return false;
    }
  };
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    Found out{name.substr(0, dot), name.substr(dot + 1)};
    if (has(out)) return out;
  }
  if (has({name, name})) return {name, name};
  const std::vector<std::string> templates = catalog_.names();
  std::vector<std::string> known;
  std::vector<Found> found;
  for (const std::string& of : templates) {
    try {
      const auto origin = catalog_.open(of);
      for (const source::BindSpec& bind : origin->manifest.binds) {
        known.push_back(bind.name);
        if (bind.name == name) found.push_back({of, name});
      }
    } catch (const Error&) {
      // The manifest of another template is wrong. Opening that template says so.
    }
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    std::vector<std::string> all;
    for (const Found& one : found) all.push_back(one.of + '.' + one.name);
    throw Error(Errc::invalid_argument, "several templates have an operator " + base::quote(name) +
                                            "; choose one of: " + base::join(all, " "));
  }
  std::sort(known.begin(), known.end());
  throw Error(Errc::unknown_template,
              (std::find(templates.begin(), templates.end(), name) != templates.end()
                   ? "template " + base::quote(name) + " is no operator: its manifest has no [bind]"
                   : "there is no operator " + base::quote(name)) +
                  base::did_you_mean(name, known) + "; operators: " + base::join(known, " "));
}

const Operator& Operators::open(const std::string& name, int device, const std::string& arch) {
  const Found found = find(name);
  KernelTemplate& of = scope_.open(found.of, device, arch);
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  std::unique_ptr<Operator>& out = state.opened[{&of, found.name}];
  if (!out) {
    const source::Manifest& manifest = source::variant_for(of.origin().manifest, of.target().arch);
    const source::BindSpec* const spec = bind_named(manifest, found.name);
    if (!spec)
      throw Error(Errc::manifest, "template " + base::quote(found.of) + " has changed, and has no operator " +
                                      base::quote(found.name) + " any more");
    out = std::make_unique<Operator>(of, manifest, *spec);
  }
  return *out;
}

}  // namespace kiln::runtime
