#include "call.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "driver.hpp"
#include "kiln/dtype.hpp"
#include "kiln/error.hpp"

namespace kiln::tvm_ffi {

// ---- tvm-ffi's functions

const Runtime* runtime() noexcept {
  static const Runtime known = [] {
    Runtime out{};
    void* library = RTLD_DEFAULT;
    if (!dlsym(library, "TVMFFIFunctionCreate")) library = dlopen("libtvm_ffi.so", RTLD_NOLOAD | RTLD_LAZY);
    const auto find = [&](auto& function, const char* name) {
      function = library || library == RTLD_DEFAULT
                     ? reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name))
                     : nullptr;
      return function != nullptr;
    };
    const bool complete =
        find(out.raise, "TVMFFIErrorSetRaisedFromCStr") && find(out.stream, "TVMFFIEnvGetStream") &&
        find(out.allocate, "TVMFFIEnvTensorAlloc") && find(out.view, "TVMFFITensorCreateUnsafeView") &&
        find(out.release, "TVMFFIObjectDecRef") && find(out.make_function, "TVMFFIFunctionCreate") &&
        find(out.global, "TVMFFIFunctionGetGlobal") && find(out.set_global, "TVMFFIFunctionSetGlobal") &&
        find(out.call, "TVMFFIFunctionCall");
    return complete ? out : Runtime{};
  }();
  return known.call ? &known : nullptr;
}

int raise(const char* kind, const std::string& message) noexcept {
  if (const Runtime* const functions = runtime()) functions->raise(kind, message.c_str());
  return -1;
}

// ---- signatures

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(separator, from), text.size());
    out.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

std::size_t place(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("no operand '" + name + "'");
  return static_cast<std::size_t>(found - names.begin());
}

/// A number as Python writes it, whatever the process's locale is.
double number_of(const char* begin, const char* end) {
  double out = 0;
  const auto [last, error] = std::from_chars(begin, end, out);
  if (error != std::errc{} || last != end)
    throw std::invalid_argument("no number '" + std::string(begin, end) + "'");
  return out;
}

}  // namespace

Signature Signature::parse(const std::string& text) {
  Signature out;
  std::vector<std::string> parts;
  for (std::size_t from = 0, to; from <= text.size(); from = to + 1) {
    to = std::min(text.find('|', from), text.size());
    parts.push_back(text.substr(from, to - from));
  }
  if (parts.size() != 5) throw std::invalid_argument("a signature has five parts");
  out.text.assign(text.c_str(), text.c_str() + text.size() + 1);
  out.name = parts[0];
  out.operator_ = out.name.substr(out.name.rfind('.') + 1);
  out.operands = split(parts[1], ',');
  out.inputs = out.operands.size();
  for (std::string& output : split(parts[2], ',')) out.operands.push_back(std::move(output));
  if (out.operands.size() > Function::kMostOperands) throw std::invalid_argument("too many operands");
  for (const std::string& argument : split(parts[3], ',')) {
    out.arguments.emplace_back();
    if (argument != "-")
      for (const std::string& operand : split(argument, '+'))
        out.arguments.back().push_back(place(out.operands, operand));
  }
  const char* at = out.text.data() + text.rfind('|') + 1;
  while (*at) {
    const char* const equals = std::strchr(at, '=');
    if (!equals || !equals[1] || equals[2] != ':')
      throw std::invalid_argument("a constant is NAME=KIND:VALUE");
    const char* const value = equals + 3;
    const std::size_t size = std::strcspn(value, ",");
    Constant made{place(out.operands, std::string(at, equals)), {}};
    if (equals[1] == 'i')
      made.value.kind = KILN_OPERAND_INTEGER, made.value.integer = std::strtoll(value, nullptr, 10);
    else if (equals[1] == 'f')
      made.value.kind = KILN_OPERAND_FLOAT, made.value.number = number_of(value, value + size);
    else
      made.value.kind = KILN_OPERAND_TEXT, made.value.text = value,
      made.value.count = static_cast<std::int32_t>(size);
    out.constants.push_back(made);
    at = value + size + (value[size] == ',');
  }
  return out;
}

bool Signature::matches(const char* description) const {
  const char* at = std::strstr(description, "\"inputs\":[");
  const char* const outputs = at ? std::strstr(at, "\"outputs\":[") : nullptr;
  const char* const end = outputs ? std::strstr(outputs, "\"scratch\":[") : nullptr;
  if (!end) return false;
  constexpr char kKey[] = "{\"name\":\"";
  std::size_t i = 0, found_inputs = 0;
  for (at = std::strstr(at, kKey); at && at < end; at = std::strstr(at, kKey), ++i) {
    at += sizeof kKey - 1;
    const std::string found(at, std::strcspn(at, "\""));
    if (i == operands.size() || operands[i] != found) return false;
    found_inputs += at < outputs;
  }
  return i == operands.size() && found_inputs == inputs;
}

// ---- calls

namespace {

constexpr std::int32_t kCuda = 2, kCudaManaged = 13;

/// Operands of one call, on the call's stack, and the tensors that the call allocates.
class Call {
 public:
  Call(const Signature& signature, const Runtime& functions) noexcept
      : signature_(signature), functions_(functions), count_(signature.operands.size()) {
    std::memset(static_cast<void*>(operands_), 0, count_ * sizeof *operands_);
    for (const Signature::Constant& one : signature.constants) operands_[one.operand] = one.value;
  }
  Call(const Call&) = delete;
  ~Call() {
    for (std::size_t i = 0; i < made_count_; ++i)
      if (made_[i].object) functions_.release(made_[i].object);
  }

  /// -1 with a raised error when an argument is of no type that kiln knows.
  int take(const Value* arguments, std::size_t count) noexcept {
    if (count > signature_.arguments.size())
      return raise("TypeError", signature_.operator_ + " takes at most " +
                                    std::to_string(signature_.arguments.size()) + " arguments, and " +
                                    std::to_string(count) + " were given");
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<std::size_t>& targets = signature_.arguments[i];
      if (targets.empty() || arguments[i].type == kNone) continue;
      kiln_operand& first = operands_[targets[0]];
      if (!read(arguments[i], &first))
        return raise("TypeError", signature_.operator_ + ": " + signature_.operands[targets[0]] +
                                      " is a value of tvm-ffi's type " + std::to_string(arguments[i].type) +
                                      ", expected a tensor, a number, a text, a dtype or None");
      for (std::size_t j = 1; j < targets.size(); ++j) operands_[targets[j]] = first;
    }
    if (!located_)
      return raise("ValueError", signature_.operator_ + ": no argument is a tensor on a CUDA device");
    return 0;
  }

  int device() const noexcept { return located_->device_id; }
  kiln_call make() noexcept {
    kiln_call out{};
    out.struct_size = sizeof out;
    out.stream = static_cast<CUstream>(functions_.stream(located_->device_type, located_->device_id));
    out.operands = operands_, out.count = count_;
    out.allocate = allocate, out.user = this;
    return out;
  }
  /// An allocation has failed, and tvm-ffi has the error.
  bool has_raised() const noexcept { return raised_; }

  int take_result(Value* result) noexcept {
    Value results[Function::kMostOperands];
    std::int32_t found = 0;
    for (std::size_t operand = signature_.inputs; operand < count_; ++operand)
      for (std::size_t i = 0; i < made_count_; ++i)
        if (made_[i].operand == operand) {
          results[found] = Value{kTensor, 0, {}};
          results[found++].object = static_cast<Object*>(made_[i].object);
          if (signature_.operands.size() - signature_.inputs == 1) made_[i].object = nullptr;
        }
    *result = Value{kNone, 0, {}};
    if (found == 0) return 0;
    if (signature_.operands.size() - signature_.inputs == 1) return *result = results[0], 0;
    static void* const array = [this] {
      void* out = nullptr;
      const Bytes name{"ffi.Array", 9};
      return functions_.global(&name, &out) == 0 ? out : nullptr;
    }();
    if (!array) return raise("RuntimeError", "tvm-ffi has no function ffi.Array");
    return functions_.call(array, results, found, result);
  }

 private:
  struct Made {
    std::size_t operand;
    void* object;
  };

  bool read(const Value& value, kiln_operand* out) noexcept {
    switch (value.type) {
      case kInt:
      case kBool:
        return out->kind = KILN_OPERAND_INTEGER, out->integer = value.integer, true;
      case kFloat:
        return out->kind = KILN_OPERAND_FLOAT, out->number = value.number, true;
      case kTensorPointer:
        return read_tensor(static_cast<const kiln_tensor*>(value.pointer), out);
      case kTensor:
        return read_tensor(&content<kiln_tensor>(value), out);
      case kDataType:
        return read_dtype(value.dtype, out);
      case kRawText:
        return read_text(value.text, std::strlen(value.text), out);
      case kSmallText:
        return read_text(value.small_text, value.small_size, out);
      case kText:
        return read_text(content<Bytes>(value).data, content<Bytes>(value).size, out);
      case kArray:
      case kList:
        return read_numbers(content<Sequence>(value), out);
      default:
        return false;
    }
  }
  bool read_tensor(const kiln_tensor* tensor, kiln_operand* out) noexcept {
    if (!located_ && (tensor->device_type == kCuda || tensor->device_type == kCudaManaged)) located_ = tensor;
    return out->kind = KILN_OPERAND_TENSOR, out->tensor = tensor, true;
  }
  static bool read_text(const char* text, std::size_t size, kiln_operand* out) noexcept {
    out->kind = KILN_OPERAND_TEXT, out->text = text;
    return out->count = static_cast<std::int32_t>(size), true;
  }
  static bool read_dtype(DataType type, kiln_operand* out) noexcept {
    for (int i = 0; i < kDtypeCount; ++i)
      if (dlpack_code(static_cast<Dtype>(i)) == type.code &&
          size_of(static_cast<Dtype>(i)) * 8 == type.bits && type.lanes == 1)
        return out->kind = KILN_OPERAND_INTEGER, out->integer = i, true;
    return false;
  }
  bool read_numbers(const Sequence& values, kiln_operand* out) noexcept {
    if (values.size < 0 || number_count_ + static_cast<std::size_t>(values.size) > Function::kMostOperands)
      return false;
    out->kind = KILN_OPERAND_FLOATS, out->numbers = numbers_ + number_count_;
    out->count = static_cast<std::int32_t>(values.size);
    for (std::int64_t i = 0; i < values.size; ++i) {
      const Value& one = values.data[i];
      if (one.type != kFloat && one.type != kInt) return false;
      numbers_[number_count_++] = one.type == kFloat ? one.number : static_cast<double>(one.integer);
    }
    return true;
  }

  /// An output or scratch memory, by the allocator of the caller's library.
  static std::int32_t allocate(std::size_t operand, const kiln_tensor* wanted, kiln_tensor* out,
                               void* user) noexcept {
    Call& self = *static_cast<Call*>(user);
    void* object = nullptr;
    self.raised_ = true;
    if (operand < self.signature_.inputs)
      return raise("ValueError", self.signature_.operator_ + ": " + self.signature_.operands[operand] +
                                     " has a layout that the kernel does not read: make it contiguous");
    if (self.made_count_ == std::size(self.made_))
      return raise("RuntimeError", self.signature_.operator_ + " needs too many allocations");
    if (self.allocate_strided(*wanted, &object) != 0) return -1;
    self.made_[self.made_count_++] = {operand, object};
    std::memcpy(out, static_cast<Object*>(object) + 1, sizeof *out);
    self.raised_ = false;
    return 0;
  }
  /// tvm-ffi allocates contiguous tensors. Other strides are a view of a flat one.
  int allocate_strided(const kiln_tensor& wanted, void** out) noexcept {
    std::int64_t expected = 1, last = 0;
    bool contiguous = true, empty = false;
    for (std::int32_t i = wanted.ndim - 1; i >= 0; --i) {
      contiguous &= wanted.shape[i] == 1 || wanted.strides[i] == expected;
      empty |= wanted.shape[i] == 0;
      last += (wanted.shape[i] - 1) * wanted.strides[i];
      expected *= wanted.shape[i];
    }
    if (contiguous || empty) return functions_.allocate(&wanted, out);
    kiln_tensor flat = wanted;
    const std::int64_t size = last + 1, one = 1;
    flat.ndim = 1, flat.shape = &size, flat.strides = &one;
    void* source = nullptr;
    if (functions_.allocate(&flat, &source) != 0) return -1;
    kiln_tensor view = wanted;
    view.data = reinterpret_cast<kiln_tensor*>(static_cast<Object*>(source) + 1)->data;
    const int status = functions_.view(source, &view, out);
    functions_.release(source);
    return status;
  }

  const Signature& signature_;
  const Runtime& functions_;
  const std::size_t count_;
  const kiln_tensor* located_ = nullptr;  ///< the first tensor on a CUDA device
  kiln_operand operands_[Function::kMostOperands];
  double numbers_[Function::kMostOperands];
  std::size_t number_count_ = 0, made_count_ = 0;
  Made made_[Function::kMostOperands];
  bool raised_ = false;
};

/// The kind of tvm-ffi's error, which Python shows as the exception of that name.
const char* kind_of(kiln_status status) noexcept {
  return status == static_cast<kiln_status>(Errc::invalid_argument) ? "ValueError" : "RuntimeError";
}

}  // namespace

int Function::call(const Value* arguments, std::int32_t count, Value* result) noexcept {
  const Runtime* const functions = runtime();
  if (!functions) return -1;
  Call made(signature_, *functions);
  if (made.take(arguments, static_cast<std::size_t>(count)) != 0) return -1;
  const CurrentDevice current(made.device());
  if (current.error()) return raise("RuntimeError", signature_.operator_ + ": " + current.error());
  void* lease = nullptr;
  kiln_operator* const op = begin(made.device(), &lease);
  if (!op) return -1;
  const kiln_call call = made.make();
  const kiln_status status = library_.call(op, &call);
  const int raised =
      status == KILN_OK || made.has_raised() ? 0 : raise(kind_of(status), library_.last_error()->message);
  end(lease);
  if (status != KILN_OK || raised != 0) return -1;
  return made.take_result(result);
}

}  // namespace kiln::tvm_ffi
