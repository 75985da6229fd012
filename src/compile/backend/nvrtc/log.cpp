#include "compile/backend/nvrtc/log.hpp"

#include <charconv>
#include <cstdint>
#include <utility>

namespace kiln::compile {
namespace {

template <class Each>
void for_each_line(std::string_view text, Each&& each) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    each(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// The number right before `word`, as in "16 bytes spill stores".
std::uint32_t number_before(std::string_view line, std::string_view word) {
  const auto at = line.find(word);
  if (at == std::string_view::npos) return 0;
  auto begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::uint32_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

}  // namespace

void take_phase_times(WorkerResponse& response) {
  constexpr std::string_view heading = "File name, phase name, metric, unit";
  const auto at = response.log.find(heading);
  if (at == std::string::npos) return;
  for_each_line(std::string_view(response.log).substr(at), [&](std::string_view line) {
    const auto value_of = [&](std::string_view phase) {
      const auto name = line.find(phase);
      double ms = 0;
      if (name != std::string_view::npos)
        std::from_chars(line.data() + name + phase.size(), line.data() + line.size(), ms);
      return ms;
    };
    response.frontend_ms += value_of("CUDA C++ Frontend, ");
    response.nvvm_ms += value_of("NVVM Optimizer, ");
    response.ptxas_ms += value_of("PTX Translation, ");
  });
  response.log.erase(at);
  // NVRTC ends the text before the table with a zero.
  const auto is_end = [](char c) { return c == '\n' || c == '\0'; };
  while (!response.log.empty() && is_end(response.log.back())) response.log.pop_back();
}

void shorten(std::string& log) {
  constexpr std::size_t half = std::size_t{1} << 20;
  if (log.size() <= 2 * half) return;
  const std::size_t end = log.size() - half;
  const std::string cut = "\n[cut: " + std::to_string(end - half) + " bytes of the compiler's log]\n";
  log = log.substr(0, half) + cut + log.substr(end);
}

void take_header_message(HeaderOutcome& header, std::string& log, std::string_view program_name) {
  if (header.file.empty()) return;
  using End = HeaderOutcome::End;
  for (const auto& [verb, end] : {std::pair("creating", End::created), std::pair("using", End::used)}) {
    const std::string line = '"' + std::string(program_name) + "\": " + verb + " precompiled header file \"" +
                             header.file + "\"\n";
    const auto at = log.find(line);
    if (at == std::string::npos || (at != 0 && log[at - 1] != '\n')) continue;
    log.erase(at, line.size());
    header.end = end;
    return;
  }
}

bool says_out_of_memory(std::string_view log, std::string_view result) noexcept {
  // The texts are the compilers' own. They cannot match a source line that the log echoes.
  for (const std::string_view sign : {"catastrophic error: out of memory", "Loop in catastrophic"}) {
    if (log.find(sign) != std::string_view::npos) return true;
  }
  if (result.find("OUT_OF_MEMORY") != std::string_view::npos) return true;
  return false;
}

bool refuses_trace(const WorkerResponse& response) noexcept {
  return response.status == WorkerResponse::Status::compile_failed &&
         response.log.find("Parsed trace file") != std::string::npos;
}

std::vector<std::string> traced_headers(std::string_view json) {
  // {"args":{"detail":".t0/cuda_fp16.h"},"dur":9334,"name":"Processing Header File",...}; from sm_100 on
  // {...,"dur":9334,"name":"Processing Header File","args":{"detail":".t0/cuda_fp16.h"}}
  constexpr std::string_view before = "{\"args\":{\"detail\":\"",
                             event = "\"name\":\"Processing Header File\"",
                             after = ",\"args\":{\"detail\":\"";
  std::vector<std::string> out;
  for (auto at = json.find(event); at != std::string_view::npos; at = json.find(event, at + 1)) {
    const bool follows = json.substr(at + event.size()).starts_with(after);
    auto i = follows ? at + event.size() + after.size() : json.rfind(before, at);
    if (i == std::string_view::npos) continue;
    if (!follows) i += before.size();
    std::string name;
    for (; i < json.size() && json[i] != '"'; ++i) {
      if (json[i] == '\\' && i + 1 < json.size()) ++i;
      name += json[i];
    }
    // Names with "[export]" are the #line texts of Instantiation::epilogue. The name of a file begins with
    // the name of its root.
    if (name != "__nv_nvrtc_builtin_header.h" && !name.starts_with("[export]"))
      out.push_back(std::move(name));
  }
  return out;
}

PtxasReport read_ptxas_report(std::string_view log, std::string_view lowered_name) {
  PtxasReport report;
  bool mine = false;
  const std::string heading = "Function properties for " + std::string(lowered_name);
  for_each_line(log, [&](std::string_view line) {
    if (line.find("Function properties for ") != std::string_view::npos) mine = line.ends_with(heading);
    if (mine && line.find("bytes spill") != std::string_view::npos) {
      report.spill_store_bytes = number_before(line, " bytes spill stores");
      report.spill_load_bytes = number_before(line, " bytes spill loads");
      mine = false;
    }
    if (line.find("(C75") == std::string_view::npos) return;
    // Most warnings name the function. A warning that names another function says nothing about this one.
    const bool names_one = line.find("function '") != std::string_view::npos;
    if (!names_one || line.find('\'' + std::string(lowered_name) + '\'') != std::string_view::npos)
      report.performance_warnings.emplace_back(line);
  });
  return report;
}

std::string diagnostics_of(std::string_view log) {
  std::string out;
  for_each_line(log, [&](std::string_view line) {
    const bool is_info = line.starts_with("ptxas info ") || line.starts_with("ptxas         .");
    const bool is_warning = line.find("(C75") != std::string_view::npos;
    if (is_info && !is_warning) return;
    if (out.empty() && line.empty()) return;
    out += line;
    out += '\n';
  });
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace kiln::compile
