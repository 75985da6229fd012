#include "attention/requests.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "attention/layout.hpp"
#include "kiln/error.hpp"

namespace kiln::attention {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(Errc::invalid_argument, "attention plan: " + what);
}

std::string element(const char* name, std::int64_t i, std::int64_t value) {
  return std::string(name) + '[' + std::to_string(i) + "] = " + std::to_string(value);
}

[[noreturn]] void fail_at(const char* name, std::int64_t i, std::int64_t value, const std::string& allowed) {
  fail(element(name, i, value) + ' ' + allowed);
}

void check_batch(const KernelShape& shape, const Limits& limits, const Lengths& lengths) {
  if (lengths.requests < 0 || lengths.requests > limits.max_requests)
    fail("requests = " + std::to_string(lengths.requests) +
         " must be 0 to max_requests = " + std::to_string(limits.max_requests));
  if (lengths.page_size < 0 || lengths.page_size > kMost)
    fail("page_size = " + std::to_string(lengths.page_size) + " must be 0 (not paged) to 2^31 - 1");
  if (lengths.window_left < -1)
    fail("window_left = " + std::to_string(lengths.window_left) + " must be -1 (off) or more");
  if (lengths.window_left >= 0 && !shape.window)
    fail("window_left = " + std::to_string(lengths.window_left) +
         ", and the kernel was specialised without a window; -1 is off");
  if (lengths.window_right < -1)
    fail("window_right = " + std::to_string(lengths.window_right) + " must be -1 (off) or more");
  if (shape.causal ? lengths.window_right > 0 : lengths.window_right >= 0 && !shape.window)
    fail("window_right = " + std::to_string(lengths.window_right) + ", and the kernel was specialised " +
         (shape.causal ? "as causal, which is a right window of 0" : "without a window") + "; -1 is off");
  if (lengths.requests > 0 && !lengths.kv_indptr) fail("kv_indptr is null");
  if (lengths.page_size > 0 && lengths.requests > 0 && !lengths.kv_len && !lengths.last_page_len)
    fail("last_page_len is null, and so is kv_len: paged kv needs one of them");
}

/// Where entry i of an indptr array begins, and its length.
struct Run {
  std::int32_t begin;
  std::int64_t length;
};

Run run_of(const char* name, const std::int32_t* indptr, std::int64_t i) {
  if (indptr[i] < 0) fail_at(name, i, indptr[i], "must not be negative");
  if (indptr[i + 1] < indptr[i])
    fail_at(name, i + 1, indptr[i + 1], "is below " + element(name, i, indptr[i]) + ": entries never shrink");
  return {indptr[i], std::int64_t{indptr[i + 1]} - indptr[i]};
}

std::int64_t paged_length(const Lengths& lengths, std::int64_t i, std::int64_t pages) {
  if (lengths.kv_len) {
    const std::int64_t length = lengths.kv_len[i];
    if (length < 0 || length > pages * lengths.page_size)
      fail_at("kv_len", i, length,
              "must be 0 to " + std::to_string(pages * lengths.page_size) + ", what its " +
                  std::to_string(pages) + " pages hold");
    return length;
  }
  if (pages == 0) return 0;
  const std::int64_t last = lengths.last_page_len[i];
  if (last < 1 || last > lengths.page_size)
    fail_at("last_page_len", i, last, "must be 1 to page_size = " + std::to_string(lengths.page_size));
  return (pages - 1) * lengths.page_size + last;
}

std::int64_t ragged_length(const Lengths& lengths, std::int64_t i, std::int64_t tokens) {
  if (!lengths.kv_len) return tokens;
  const std::int64_t length = lengths.kv_len[i];
  if (length < 0 || length > tokens)
    fail_at("kv_len", i, length, "must be 0 to " + std::to_string(tokens) + ", what kv_indptr leaves to it");
  return length;
}

}  // namespace

std::vector<Request> checked_requests(const KernelShape& shape, const Limits& limits,
                                      const Lengths& lengths) {
  check_batch(shape, limits, lengths);
  std::vector<Request> out(static_cast<std::size_t>(lengths.requests));
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < lengths.requests; ++i) {
    const Run qo =
        lengths.qo_indptr ? run_of("qo_indptr", lengths.qo_indptr, i) : Run{static_cast<std::int32_t>(i), 1};
    const Run kv = run_of("kv_indptr", lengths.kv_indptr, i);
    const std::int64_t kv_len =
        lengths.page_size > 0 ? paged_length(lengths, i, kv.length) : ragged_length(lengths, i, kv.length);
    for (const auto& [what, length] : {std::pair("q", qo.length), std::pair("kv", kv_len)})
      if (length > kMostTokens)
        fail("request " + std::to_string(i) + " has " + std::to_string(length) + " tokens of " + what +
             "; at most 2^30 - 1");
    tokens += qo.length;
    out[static_cast<std::size_t>(i)] = {qo.begin, static_cast<std::int32_t>(qo.length), kv.begin,
                                        static_cast<std::int32_t>(kv_len)};
  }
  if (tokens > limits.max_tokens)
    fail("the requests have " + std::to_string(tokens) +
         " tokens of q; at most max_tokens = " + std::to_string(limits.max_tokens));
  return out;
}

}  // namespace kiln::attention
