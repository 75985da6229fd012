#include "runtime/path/flight_error.hpp"

#include <cstdint>

#include "base/wire.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kOverhead = 64;  // numbers and lengths

std::string encode(const Error& error, const CompileError* compile, double limit_s, std::size_t limit) {
  std::size_t left = limit > kOverhead ? limit - kOverhead : 0;
  const auto fitting = [&left](std::string_view text) {
    text = text.substr(0, left);
    left -= text.size();
    return text;
  };
  const std::string_view log = fitting(compile ? std::string_view(compile->log()) : "");
  const std::string_view specialization = fitting(compile ? std::string_view(compile->specialization()) : "");
  const std::string_view message = fitting(error.what());
  const std::string_view options = fitting(compile ? std::string_view(compile->options()) : "");
  base::Writer out;
  out.number(kFormat)
      .number(limit_s)
      .number(static_cast<std::int32_t>(error.code()))
      .number<std::uint8_t>(compile != nullptr);
  out.bytes(message).bytes(specialization).bytes(options).bytes(log);
  return std::move(out.str());
}

}  // namespace

std::string encode_flight_error(const std::exception_ptr& error, double limit_s, std::size_t limit) {
  try {
    std::rethrow_exception(error);
  } catch (const CompileError& e) {
    return encode(e, &e, limit_s, limit);
  } catch (const Error& e) {
    return encode(e, nullptr, limit_s, limit);
  } catch (...) {
    return {};
  }
}

std::exception_ptr decode_flight_error(std::string_view bytes, double own_limit_s) {
  try {
    base::Reader in(bytes);
    if (in.number<std::uint32_t>() != kFormat) return nullptr;
    const double limit_s = in.number<double>();
    const auto code = static_cast<Errc>(in.number<std::int32_t>());
    if (code <= Errc::ok || code > Errc::internal) return nullptr;
    if (code == Errc::compile_timeout && limit_s < own_limit_s) return nullptr;
    const bool is_compile_error = in.number<std::uint8_t>() != 0;
    const std::string message = in.string(), specialization = in.string(), options = in.string(),
                      log = in.string();
    if (!is_compile_error) return std::make_exception_ptr(Error(code, message));
    return std::make_exception_ptr(CompileError(code, message, specialization, options, log));
  } catch (const base::Malformed&) {
    return nullptr;
  }
}

}  // namespace kiln::runtime
