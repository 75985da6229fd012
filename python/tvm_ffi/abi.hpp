// The part of tvm-ffi's C ABI that kiln uses, as of 0.1.11 and later (c_api.h and extra/c_env_api.h of tvm-ffi).
// Nothing of tvm-ffi is needed to build. Its functions are found at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kiln/kiln.h"

namespace kiln::tvm_ffi {

/// The types of values. Those from `object` on are objects with a reference count.
enum TypeIndex : std::int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kFloat = 3,
  kOpaquePointer = 4,
  kDataType = 5,
  kTensorPointer = 7,  ///< a DLTensor that the caller owns
  kRawText = 8,        ///< ends with a zero byte
  kSmallText = 11,     ///< at most 7 bytes, inside the value
  kText = 65,
  kFunction = 68,
  kShape = 69,
  kTensor = 70,
  kArray = 71,
  kList = 75
};

struct Object {
  std::uint64_t references;
  std::int32_t type;
  std::uint32_t padding;
  void (*deleter)(void*, int);
};

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

/// TVMFFIAny: an argument or a result.
struct Value {
  std::int32_t type;
  std::uint32_t small_size;  ///< bytes of a small text; 0 for all other types
  union {
    std::int64_t integer;
    double number;
    void* pointer;
    const char* text;
    Object* object;
    DataType dtype;
    char small_text[8];
  };
};
static_assert(sizeof(Object) == 24 && sizeof(Value) == 16);

struct Bytes {
  const char* data;
  std::size_t size;
};
struct Sequence {
  const Value* data;
  std::int64_t size;
};

/// The content after an object's header: Bytes of a text, a Sequence of an array, a DLTensor of a tensor.
template <class T>
const T& content(const Value& value) noexcept {
  return *reinterpret_cast<const T*>(value.object + 1);
}

using SafeCall = int (*)(void* self, const Value* arguments, std::int32_t count, Value* result);

/// tvm-ffi's functions. Those that return int return 0, or another number with a raised error.
struct Runtime {
  void (*raise)(const char* kind, const char* message);
  void* (*stream)(std::int32_t device_type, std::int32_t device);
  int (*allocate)(const kiln_tensor* wanted, void** out);  ///< by the caller's library; strides are ignored
  int (*view)(void* source, const kiln_tensor* wanted, void** out);
  int (*release)(void* object);
  int (*make_function)(void* self, SafeCall call, void (*deleter)(void*), void** out);
  int (*global)(const Bytes* name, void** out);
  int (*set_global)(const Bytes* name, void* function, int override);
  int (*call)(void* function, Value* arguments, std::int32_t count, Value* result);
};

/// Null when the process has no tvm-ffi, or one that lacks a function.
const Runtime* runtime() noexcept;

}  // namespace kiln::tvm_ffi
