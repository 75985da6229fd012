#include "cache/fleet/redis/reply_reader.hpp"

#include <hiredis/hiredis.h>

#include <new>

namespace kiln::fleet {
namespace {

/// Where the reader's next element goes: into its array, or a new reply. Null when there is no memory.
Reply* target(const redisReadTask* task) noexcept {
  if (!task->parent) return new (std::nothrow) Reply;
  return &static_cast<Reply*>(task->parent->obj)->elements[static_cast<std::size_t>(task->idx)];
}

/// Called through C, so nothing may be thrown. Null tells hiredis that there is no memory.
template <class Fill>
void* made(const redisReadTask* task, Fill&& fill) noexcept {
  Reply* reply = target(task);
  if (!reply) return nullptr;
  try {
    fill(*reply);
    return reply;
  } catch (...) {
    if (!task->parent) delete reply;
    return nullptr;
  }
}

void* make_text(const redisReadTask* task, char* text, std::size_t size) {
  return made(task, [&](Reply& reply) {
    reply.kind = task->type == REDIS_REPLY_ERROR    ? Reply::Kind::error
                 : task->type == REDIS_REPLY_STATUS ? Reply::Kind::status
                                                    : Reply::Kind::bulk;
    reply.text.assign(text, size);
  });
}

void* make_array(const redisReadTask* task, int elements) {
  return made(task, [&](Reply& reply) {
    reply.kind = Reply::Kind::array;
    reply.elements.resize(static_cast<std::size_t>(elements));
  });
}

void* make_integer(const redisReadTask* task, long long value) {
  return made(task, [&](Reply& reply) {
    reply.kind = Reply::Kind::integer;
    reply.integer = value;
  });
}

void* make_nil(const redisReadTask* task) {
  return made(task, [](Reply&) {});
}

void free_reply(void* reply) { delete static_cast<Reply*>(reply); }

redisReplyObjectFunctions g_functions = {make_text, make_array, make_integer, make_nil, free_reply};

}  // namespace

void ReplyReader::Free::operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(::redisReaderCreateWithFunctions(&g_functions)) {
  if (!reader_) throw std::bad_alloc();
}

void ReplyReader::feed(std::string_view bytes) {
  // It fails only for lack of memory, which next() would repeat.
  if (::redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) throw std::bad_alloc();
}

std::optional<Reply> ReplyReader::next(bool& fine) {
  void* reply = nullptr;
  fine = ::redisReaderGetReply(reader_.get(), &reply) == REDIS_OK;
  if (!fine && reader_->err == REDIS_ERR_OOM) throw std::bad_alloc();
  if (!reply) return std::nullopt;
  const std::unique_ptr<Reply> owner(static_cast<Reply*>(reply));
  return std::move(*owner);
}

}  // namespace kiln::fleet
