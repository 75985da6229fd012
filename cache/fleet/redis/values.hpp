// Answers of a server of the Redis protocol as the values of the seam (cache/fleet/backend.hpp).
#pragma once

#include <cstdint>
#include <utility>

#include "cache/fleet/backend.hpp"
#include "cache/fleet/envelope.hpp"
#include "cache/fleet/redis/reply.hpp"

namespace kiln::fleet {

/// Bytes of the answer that is one entry, with what the protocol puts around it.
inline constexpr std::uint64_t kEntryReply = kMostEnvelope + 64;

inline Outcome outcome_of(Answer answer) { return {answer.fault, std::move(answer.detail)}; }

/// The value in the answer to a GET.
inline Value value_of(Answer answer) {
  Value out;
  if (is_of_wrong_type(answer.fault, answer.detail)) {  // a SET replaces it
    out.kind = Value::Kind::other;
    return out;
  }
  out.fault = answer.fault;
  out.detail = std::move(answer.detail);
  if (!answer || answer.reply.kind == Reply::Kind::nil) return out;
  out.kind = answer.reply.kind == Reply::Kind::bulk ? Value::Kind::bytes : Value::Kind::other;
  if (out.kind == Value::Kind::bytes) out.bytes = std::move(answer.reply.text);
  return out;
}

/// The rows in the answer to an HGETALL.
inline Rows rows_of(Answer answer) {
  Rows out;
  out.fault = answer.fault;
  out.detail = std::move(answer.detail);
  auto& elements = answer.reply.elements;
  for (std::size_t i = 0; i + 1 < elements.size(); i += 2)
    out.rows.emplace_back(std::move(elements[i].text), std::move(elements[i + 1].text));
  return out;
}

}  // namespace kiln::fleet
