#include "tools/kiln/store/key/difference.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "compile/key/fields.hpp"
#include "compile/key/key.hpp"

namespace kiln::cli {
namespace {

using Fields = std::vector<compile::KeyField>;
using Named = std::map<std::string, std::string>;
using compile::FieldId;
using Is = compile::FieldKind::Is;
const std::string kInclude(compile::label_of(FieldId::include));

/// ".k0/kiln/dtype.cuh" -> "kiln/dtype.cuh": a user does not know the symbolic roots.
std::string file_name(const std::string& symbolic) {
  const auto slash = symbolic.find('/');
  return symbolic[0] == '.' && slash != std::string::npos ? symbolic.substr(slash + 1) : symbolic;
}

std::string all_of(const compile::KeyField& field, std::size_t from = 0) {
  std::string out;
  for (std::size_t i = from; i < field.values.size(); ++i) out += (i > from ? " " : "") + field.values[i];
  return out;
}

/// "-std" of "-std=c++17"; an option with another value is the same option, changed.
std::string option_name(const std::string& option) { return option.substr(0, option.find('=')); }

/// The fields with this label, by the name under which they are compared. A repeated name is made unique.
Named named(const Fields& fields, const std::string& label) {
  Named out;
  for (const compile::KeyField& field : fields) {
    if (field.label != label || field.values.empty()) continue;
    std::string name, value = field.values.back();
    if (compile::is(label, Is::option))
      name = option_name(value);
    else if (compile::is(label, FieldId::include) && field.values.size() == 4)
      name = field.values[0] + '\n' + field.values[1] + '\n' + field.values[2];
    else if (field.values.size() == 2)
      name = field.values[0];
    else
      value = all_of(field);
    while (!out.emplace(name, value).second) name += '\n';
  }
  return out;
}

class Comparison {
 public:
  Comparison(std::string_view one, std::string_view other)
      : one_(compile::parse_key_text(one)), other_(compile::parse_key_text(other)) {}

  std::vector<KeyDifference> run() {
    std::vector<compile::FieldKind> kinds(std::begin(compile::kFields), std::end(compile::kFields));
    std::sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    for (const compile::FieldKind& kind : kinds)
      kind.id == FieldId::include ? includes() : compare(std::string(kind.label));
    std::set<std::string> others;  // labels that only another version of kiln writes
    for (const Fields* fields : {&one_, &other_})
      for (const compile::KeyField& field : *fields)
        if (!compile::field_of(field.label)) others.insert(field.label);
    for (const std::string& label : others) compare(label);
    return std::move(out_);
  }

 private:
  void compare(const std::string& label) {
    const Named one = named(one_, label), other = named(other_, label);
    const auto shown = [&](const std::string& name) {
      const std::string plain = name.substr(0, name.find('\n'));
      return compile::is(label, Is::file) ? file_name(plain) : plain;
    };
    for (const auto& [name, value] : one) {
      const auto found = other.find(name);
      if (found == other.end())
        out_.push_back({label, shown(name), value, std::nullopt});
      else if (found->second != value)
        out_.push_back({label, shown(name), value, found->second});
    }
    for (const auto& [name, value] : other)
      if (!one.contains(name)) out_.push_back({label, shown(name), std::nullopt, value});
  }

  struct Edge {
    std::string includer, spelling, symbolic, digest;
  };
  static std::vector<Edge> edges(const Fields& fields) {
    std::vector<Edge> out;
    for (const compile::KeyField& f : fields)
      if (compile::is(f.label, FieldId::include) && f.values.size() == 4)
        out.push_back({f.values[0], f.values[1], f.values[2], f.values[3]});
    return out;
  }
  static std::string by(const Edge& edge) {
    return edge.spelling + (edge.includer.empty() ? " in the source" : " in " + file_name(edge.includer));
  }

  /// A file is one difference, however many files include it: it changed, or only one side has it. An include
  /// whose spelling finds another file on the other side is reported as such.
  void includes() {
    const std::vector<Edge> one = edges(one_), other = edges(other_);
    const auto digests = [](const std::vector<Edge>& edges) {
      Named out;
      for (const Edge& edge : edges) out.emplace(edge.symbolic, edge.digest);
      return out;
    };
    const Named files_of_one = digests(one), files_of_other = digests(other);
    std::set<std::string> told;
    const auto tell = [&](const Edge& edge, std::optional<std::string> a, std::optional<std::string> b) {
      if (told.insert(edge.symbolic).second)
        out_.push_back({kInclude, file_name(edge.symbolic), std::move(a), std::move(b), by(edge)});
    };
    for (const Edge& edge : one) {
      const auto found = files_of_other.find(edge.symbolic);
      if (found != files_of_other.end()) {
        if (found->second != edge.digest) tell(edge, edge.digest, found->second);
        continue;
      }
      const auto elsewhere = std::find_if(other.begin(), other.end(), [&](const Edge& e) {
        return e.includer == edge.includer && e.spelling == edge.spelling &&
               !files_of_one.contains(e.symbolic);
      });
      if (elsewhere == other.end()) {
        tell(edge, edge.digest, std::nullopt);
      } else if (told.insert(edge.symbolic).second && told.insert(elsewhere->symbolic).second) {
        out_.push_back({kInclude, file_name(edge.symbolic), edge.symbolic + ' ' + edge.digest,
                        elsewhere->symbolic + ' ' + elsewhere->digest, by(edge)});
      }
    }
    for (const Edge& edge : other)
      if (!files_of_one.contains(edge.symbolic)) tell(edge, std::nullopt, edge.digest);
  }

  const Fields one_, other_;
  std::vector<KeyDifference> out_;
};

}  // namespace

std::vector<KeyDifference> key_differences(std::string_view one, std::string_view other) {
  if (one == other) return {};
  auto out = Comparison(one, other).run();
  if (out.empty()) out.push_back({"order", "", std::nullopt, std::nullopt});
  return out;
}

Distance distance_of(const std::vector<KeyDifference>& differences) noexcept {
  Distance out;
  for (const KeyDifference& d : differences) {
    const compile::FieldKind* kind = compile::field_of(d.field);
    if (kind && kind->asked > 0)
      out.asked += static_cast<std::size_t>(kind->asked);
    else if (!kind || !kind->derived)
      ++out.made;
  }
  return out;
}

}  // namespace kiln::cli
