#include "runtime/operator/operators.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/bind/describe.hpp"

namespace kiln::runtime {
namespace {

const source::BindSpec* bind_named(const source::Manifest& manifest, std::string_view name) {
  const auto found = std::find_if(manifest.binds.begin(), manifest.binds.end(),
                                  [&](const source::BindSpec& b) { return b.name == name; });
  return found == manifest.binds.end() ? nullptr : &*found;
}

}  // namespace

template <class Each>
void Operators::each_template(const Each& each) {
  for (const std::string& of : catalog_.names()) {
    std::shared_ptr<const source::Template> origin;
    try {
      origin = catalog_.open(of);
    } catch (const Error&) {
      continue;  // The manifest of another template is wrong. Opening that template says so.
    }
    each(origin->manifest);
  }
}

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
  std::vector<std::string> known;
  std::vector<Found> found;
  each_template([&](const source::Manifest& manifest) {
    for (const source::BindSpec& bind : manifest.binds) {
      known.push_back(bind.name);
      if (bind.name == name) found.push_back({manifest.name, name});
    }
  });
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    std::vector<std::string> all;
    for (const Found& one : found) all.push_back(one.of + '.' + one.name);
    throw Error(Errc::invalid_argument, "several templates have an operator " + base::quote(name) +
                                            "; choose one of: " + base::join(all, " "));
  }
  std::sort(known.begin(), known.end());
  const std::vector<std::string> templates = catalog_.names();
  throw Error(Errc::unknown_template,
              (std::find(templates.begin(), templates.end(), name) != templates.end()
                   ? "template " + base::quote(name) + " is no operator: its manifest has no [bind]"
                   : "there is no operator " + base::quote(name)) +
                  base::did_you_mean(name, known) + "; operators: " + base::join(known, " "));
}

std::string Operators::describe(const std::string& name) {
  std::vector<std::string> items;
  if (!name.empty()) {
    const Found found = find(name);
    const std::shared_ptr<const source::Template> origin = catalog_.open(found.of);
    items.push_back(source::json_of(origin->manifest, *bind_named(origin->manifest, found.name)));
  } else {
    each_template([&](const source::Manifest& manifest) {
      for (const source::BindSpec& bind : manifest.binds) items.push_back(source::json_of(manifest, bind));
    });
  }
  return '[' + base::join(items, ",") + ']';
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
