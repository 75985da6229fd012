#include "runtime/tuned/pinned_choices.hpp"

#include <array>
#include <atomic>
#include <memory>

#include "base/hash.hpp"

namespace kiln::runtime {
namespace {

struct Node {
  const std::string call;
  const PinnedChoice choice;
  const Node* next;
};

constexpr std::size_t kBuckets = 1024;
// Never freed: an answer holds until the process ends, whichever service asked for it.
constinit std::array<std::atomic<const Node*>, kBuckets> g_buckets{};

std::atomic<const Node*>& bucket_of(const std::string& call) noexcept {
  return g_buckets[base::hash64(call) % kBuckets];
}

const Node* find(const Node* from, const Node* until, const std::string& call) noexcept {
  for (; from != until; from = from->next)
    if (from->call == call) return from;
  return nullptr;
}

}  // namespace

const PinnedChoice* pinned_choice(const std::string& call) noexcept {
  const Node* found = find(bucket_of(call).load(std::memory_order_acquire), nullptr, call);
  return found ? &found->choice : nullptr;
}

const PinnedChoice& pin_choice(const std::string& call, PinnedChoice choice) {
  std::atomic<const Node*>& bucket = bucket_of(call);
  auto fresh = std::make_unique<Node>(Node{call, std::move(choice), nullptr});
  const Node *head = bucket.load(std::memory_order_acquire), *seen = nullptr;
  do {
    if (const Node* there = find(head, seen, call)) return there->choice;
    seen = head;
    fresh->next = head;
  } while (!bucket.compare_exchange_weak(head, fresh.get(), std::memory_order_acq_rel));
  return fresh.release()->choice;
}

}  // namespace kiln::runtime
