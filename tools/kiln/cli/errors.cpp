#include "tools/kiln/cli/errors.hpp"

#include <cstdio>
#include <new>

#include "base/text.hpp"
#include "cache/store/file/pages.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

std::string_view name_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok:
      return "ok";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::unknown_template:
      return "unknown_template";
    case Errc::unknown_parameter:
      return "unknown_parameter";
    case Errc::invalid_value:
      return "invalid_value";
    case Errc::requirement:
      return "requirement";
    case Errc::manifest:
      return "manifest";
    case Errc::source:
      return "source";
    case Errc::unsupported_arch:
      return "unsupported_arch";
    case Errc::compile_failed:
      return "compile_failed";
    case Errc::compile_timeout:
      return "compile_timeout";
    case Errc::compile_crashed:
      return "compile_crashed";
    case Errc::no_compiler:
      return "no_compiler";
    case Errc::no_driver:
      return "no_driver";
    case Errc::driver:
      return "driver";
    case Errc::not_ready:
      return "not_ready";
    case Errc::deadline:
      return "deadline";
    case Errc::io:
      return "io";
    case Errc::internal:
      return "internal";
  }
  return "internal";
}

Exit exit_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok:
      return kDone;
    case Errc::invalid_argument:
    case Errc::unknown_template:
    case Errc::unknown_parameter:
    case Errc::invalid_value:
    case Errc::requirement:
    case Errc::unsupported_arch:
      return kUsage;
    default:
      return kFailed;
  }
}

namespace {

void print_error(const Context& context, std::string_view code, const std::string& message) {
  std::fflush(stdout);
  const std::string line = "kiln: " + paint("error", Style::red, standard_error()) + ": " + message + '\n';
  std::fputs(line.c_str(), stderr);
  if (context.json) {
    print_json({{"schema", context.command.empty() ? "kiln/1" : context.schema()},
                {"error", {{"code", code}, {"message", message}}}});
  }
}

}  // namespace

Exit report(const Context& context, Errc code, const std::string& message) {
  print_error(context, name_of(code), message);
  return exit_of(code);
}

Exit report_damage(const Context& context, const std::string& message) {
  print_error(context, "damaged", message);
  return kDamaged;
}

Exit report_current(const Context& context) {
  try {
    throw;
  } catch (const cache::Damaged& damage) {
    return report_damage(context, std::string("the cache's file is damaged: ") + damage.what() +
                                      "; 'kiln verify' lists the damage, and the next publish heals it");
  } catch (const Error& error) {
    return report(context, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(context, Errc::internal, "out of memory");
  } catch (const std::exception& error) {
    return report(context, Errc::internal, error.what());
  }
}

std::string first_diagnostic(const std::exception& error) {
  const std::string message = error.what();
  std::string line = message.substr(0, message.find('\n'));
  if (const auto* compile = dynamic_cast<const CompileError*>(&error)) {
    for (const std::string& said : base::split(compile->log(), '\n')) {
      if (said.find("error") == std::string::npos) continue;
      line = said;
      break;
    }
  }
  constexpr std::string_view place = "/nonexistent/";  // where the compiler takes the source to be
  if (line.starts_with(place)) line.erase(0, place.size());
  return line;
}

std::string brief_of(const std::exception& error) {
  const std::string message = error.what();
  const std::string head = message.substr(0, message.find('\n')), said = first_diagnostic(error);
  return head == said ? head : head + ": " + said;
}

}  // namespace kiln::cli
