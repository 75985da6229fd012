#include "tools/kiln/run/report.hpp"
#include "tools/kiln/cli/table.hpp"

#include <algorithm>

namespace kiln::cli {
namespace {

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

bool is_integer(const CheckedArgument& r) {
  const std::optional<Dtype> dtype = dtype_from(r.dtype);
  return dtype && kiln::is_integer(*dtype);
}

std::string error_of(const CheckedArgument& r) {
  if (!is_integer(r)) return formatted("%.1e", r.relative_rms);
  return r.differing ? std::to_string(r.differing) + " differ" : "none";
}

bool is_ok(const SizeResult& result) {
  return std::all_of(result.check.begin(), result.check.end(), [](const auto& r) { return r.ok; });
}

/// How an argument differs from the reference.
std::string wrongs_of(const CheckedArgument& r) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (is_integer(r) && r.differing) {
    add(std::to_string(r.differing) + " of " + std::to_string(r.elements) + " elements differ, by up to " +
        formatted("%.15g", r.max_abs));
  } else if (!(r.relative_rms <= r.tolerance)) {
    add("relative RMS " + formatted("%.2e", r.relative_rms) + " where " + formatted("%.1e", r.tolerance) +
        " is allowed, largest error " + formatted("%.3g", r.max_abs));
  }
  if (r.mismatched_nonfinite) {
    add(std::to_string(r.mismatched_nonfinite) +
        (is_integer(r) ? " not written by the reference" : " NaN or Inf on one side only"));
  }
  if (!r.canaries) add("the kernel wrote outside of a buffer");
  return out.empty() ? "not all of " + counted(r.elements, "element") + " were compared" : out;
}

/// "rows=64 columns=8": the values that distinguish the sizes.
std::string size_text(const SizeResult& result, const std::vector<std::size_t>& shown) {
  std::string out;
  for (const std::size_t i : shown)
    out += (out.empty() ? "" : " ") + result.values[i].name + '=' + result.values[i].value;
  return out;
}

/// Indices of the values that get columns: values that vary or were given, else the first value.
std::vector<std::size_t> columns_of_sizes(const std::vector<SizeResult>& results,
                                          const std::vector<std::string>& given) {
  std::vector<std::size_t> out;
  const auto& first = results.front().values;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool varies = std::any_of(results.begin(), results.end(),
                                    [&](const auto& r) { return r.values[i].value != first[i].value; });
    if (varies || std::find(given.begin(), given.end(), first[i].name) != given.end()) out.push_back(i);
  }
  if (out.empty() && !first.empty()) out.push_back(0);
  return out;
}

void print_wrongs(const std::vector<SizeResult>& results, const std::vector<std::size_t>& shown) {
  for (const SizeResult& result : results) {
    const std::string size = size_text(result, shown);
    for (const CheckedArgument& r : result.check) {
      if (r.ok) continue;
      print(paint("WRONG", Style::red, standard_output()) + "  " + r.name + (size.empty() ? "" : " at ") +
            size + ": " + wrongs_of(r) + '\n');
    }
  }
}

/// Explains the columns.
void print_legend(const SizeResult& result) {
  if (!result.check.empty()) {
    std::string allowed;
    for (const CheckedArgument& r : result.check) {
      allowed += (allowed.empty() ? "" : ", ") + r.name + " (" + r.dtype + ") " +
                 (r.tolerance > 0 ? formatted("%.1e", r.tolerance) : "none");
    }
    print_paragraph(
        "check: compares with the template's reference, a naive kernel in double. The error of floating "
        "types "
        "is the root mean square of the differences, divided by the root mean square of the reference; "
        "allowed: " +
            allowed + '.',
        Style::dim);
  }
  if (result.bench) {
    print_paragraph(
        "stream: the time of a kernel that only reads and writes as many bytes ([cost] of the manifest), "
        "from buffers that are as cold. share is stream divided by us: at 100 %, the kernel is as fast as "
        "this "
        "memory.",
        Style::dim);
    if (!result.bench->unit.empty())
      print_paragraph(
          result.bench->peak > 0
              ? "peak: the rate of a kernel that only multiplies " + result.bench->unit +
                    " on this card's tensor cores. share is then the larger of stream and "
                    "of the time at "
                    "the peak, divided by us."
              : "peak: not measured, since kiln has a kernel for it only for bf16, f16 and e4m3 on compute "
                "capability "
                "9.0.",
          Style::dim);
  }
}

Json check_json(const CheckedArgument& r) {
  return {{"argument", r.name},
          {"dtype", r.dtype},
          {"relative_rms", r.relative_rms},
          {"max_abs", r.max_abs},
          {"tolerance", r.tolerance},
          {"elements", r.elements},
          {"differing", r.differing},
          {"mismatched_nonfinite", r.mismatched_nonfinite},
          {"canaries", r.canaries},
          {"ok", r.ok}};
}

Json bench_json(const BenchResult& b) {
  return {{"us", b.us},
          {"stream_us", b.stream_us},
          {"share", b.share()},
          {"tb_per_s", b.terabytes_per_s()},
          {"read_bytes", b.read_bytes},
          {"write_bytes", b.write_bytes},
          {"flops", b.flops},
          {"tflop_per_s", b.teraflops_per_s()},
          {"unit", b.unit.empty() ? Json(nullptr) : Json(b.unit)},
          {"peak_tflop_per_s", b.peak > 0 ? Json(b.peak / 1e6) : Json(nullptr)},
          {"tensor_us", b.peak > 0 ? Json(b.tensor_us()) : Json(nullptr)},
          {"floor_us", b.floor_us()},
          {"launches", b.launches},
          {"sets", b.sets},
          {"replays", b.replays}};
}

}  // namespace

void print_sizes(const std::vector<SizeResult>& results, const std::vector<std::string>& given) {
  using Fit = Table::Fit;
  const SizeResult& first = results.front();
  const std::vector<std::size_t> shown = columns_of_sizes(results, given);
  std::string same;
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    if (std::find(shown.begin(), shown.end(), i) == shown.end())
      same += ' ' + first.values[i].name + '=' + first.values[i].value;
  }
  if (!same.empty()) print_definition("", "with" + same, 2);
  print("\n");

  std::vector<Table::Column> columns;
  for (const std::size_t i : shown) columns.push_back({first.values[i].name, Fit::right});
  if (first.bench) {
    for (const char* title : {"us", "TB/s", "stream us"}) columns.push_back({title, Fit::right});
    if (!first.bench->unit.empty())
      for (const char* title : {"TFLOP/s", "peak"}) columns.push_back({title, Fit::right});
    columns.push_back({"share", Fit::right});
  }
  if (!first.check.empty()) columns.push_back({"check"});
  for (const CheckedArgument& r : first.check) columns.push_back({r.name + " error", Fit::right});
  if (!first.bench && first.check.empty()) columns.push_back({"launched"});
  Table table(columns);
  for (const SizeResult& result : results) {
    std::vector<std::string> row;
    for (const std::size_t i : shown) row.push_back(result.values[i].value);
    if (const auto& b = result.bench) {
      row.insert(row.end(), {formatted("%.2f", b->us), formatted("%.3f", b->terabytes_per_s()),
                             formatted("%.2f", b->stream_us)});
      if (!b->unit.empty())
        row.insert(row.end(), {formatted("%.1f", b->teraflops_per_s()),
                               b->peak > 0 ? formatted("%.1f", b->peak / 1e6) : "?"});
      row.push_back(formatted("%.1f %%", 100 * b->share()));
    }
    if (!result.check.empty()) row.push_back(is_ok(result) ? "ok" : "WRONG");
    for (const CheckedArgument& r : result.check) row.push_back(error_of(r));
    if (!first.bench && first.check.empty()) row.push_back("yes");
    table.add(std::move(row));
  }
  table.print();
  print_wrongs(results, shown);
  if (first.bench || !first.check.empty()) print("\n");
  print_legend(first);
}

Json json_of(const SizeResult& result) {
  Json out{{"arguments", text_of(result.values)}};
  if (!result.check.empty()) {
    out["check"] = Json::array();
    for (const CheckedArgument& r : result.check) out["check"].push_back(check_json(r));
  }
  if (result.bench) out["bench"] = bench_json(*result.bench);
  return out;
}

}  // namespace kiln::cli
