#include "runtime/operator/operator.hpp"

#include <algorithm>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

using source::BindArgument;
using source::BindOperand;

}  // namespace

Operator::Operator(KernelTemplate& of, const source::Manifest& manifest, const source::BindSpec& spec)
    : template_(of),
      manifest_(manifest),
      spec_(spec),
      reader_(of.target(), manifest, spec),
      writer_(reader_, manifest, spec) {
  std::vector<int> reads;
  const auto read = [&](const source::Expression& e) {
    for (const int slot : e.reads())
      if (slot < spec.first_slot) reads.push_back(slot);
  };
  for (const BindOperand& o : spec.operands) {
    for (const auto& shape : o.shapes) std::for_each(shape.extents.begin(), shape.extents.end(), read);
    std::for_each(o.strides.begin(), o.strides.end(), read);
    if (o.dtype.parameter >= 0) reads.push_back(o.dtype.parameter);
    read(o.dtype.computed);
  }
  for (const auto& layout : spec.layouts) std::for_each(layout.strides.begin(), layout.strides.end(), read);
  for (std::size_t i = 0; i < writer_.count(); ++i)
    read(spec.arguments[i].value), read(manifest.arguments[i].value);
  std::sort(reads.begin(), reads.end());
  reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  const int arguments = manifest.slots.argument_slot(0), end = manifest.slots.runtime_slot(0);
  for (const int slot : reads)
    if (slot < arguments || slot >= end) fixed_.push_back(slot);

  for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
    const auto p = static_cast<std::size_t>(spec.parameters[i].parameter);
    if (packed_parameters_.size() <= p) packed_parameters_.resize(p + 1, -1);
    packed_parameters_[p] = static_cast<int>(i);
  }
}

Operator::~Operator() {
  for (const auto& known : remembered_) delete known.load(std::memory_order_relaxed);
}

void Operator::call(const kiln_call& call) const {
  if (const Remembered* known = remembered(call); known && launch_again(*known, call)) [[likely]]
    return;
  call_anew(call);
}

void Operator::call_anew(const kiln_call& call) const {
  CallFrame frame;
  reader_.read(call, frame);
  std::int64_t values[source::kMaxParameters];
  take_parameters(frame, values);
  PackedParameters packed;
  packed.set(values, static_cast<std::uint32_t>(packed_parameters_.size()));
  const std::uint64_t changes =
      template_.ready().changes();  // read first: a later change is seen by the next call
  const LoadedKernel* kernel = template_.ready().find_packed(packed);
  if (!kernel) kernel = make_ready(values, call);
  if (!kernel) return;  // without a device
  const std::vector<std::int64_t>& fixed = kernel->fixed_slots();
  for (const int slot : fixed_)
    frame.slots[static_cast<std::size_t>(slot)] = fixed[static_cast<std::size_t>(slot)];
  reader_.check_late_dtypes(frame);
  make_outputs(call, frame);
  reader_.read_outputs(frame);
  writer_.write(frame);
  const bool as_given = check_layouts(call, frame);
  writer_.write_addresses(frame);
  launch(call, *kernel, frame.data.data(), writer_.count());
  if (as_given) remember(call, *kernel, changes, frame);
}

void Operator::launch(const kiln_call& call, const LoadedKernel& kernel, const void* const* data,
                      std::size_t count) const {
  kernel.launch(reinterpret_cast<toolchain::CUstream>(call.stream), writer_.types(), data, count);
}

// ---- calls that were made before

const Operator::Remembered* Operator::remembered(const kiln_call& call) const noexcept {
  for (const auto& entry : remembered_) {
    const Remembered* const known = entry.load(std::memory_order_acquire);
    if (!known) return nullptr;
    if (known->shape.is_of(call)) return known;
  }
  return nullptr;
}

/// Returns false when the kernel is not in use any more: it was released, or a better one has replaced it.
bool Operator::launch_again(const Remembered& known, const kiln_call& call) const {
  if (known.changes.load(std::memory_order_acquire) != template_.ready().changes()) return false;
  const LoadedKernel* const kernel = known.kernel.load(std::memory_order_relaxed);
  std::array<const void*, source::kMaxArguments> data;
  std::array<std::uint64_t, source::kMaxArguments> addresses;
  std::array<kiln_tensor, kMaxOperands> made;
  for (std::size_t i = 0; i < known.storage.size(); ++i) data[i] = &known.storage[i];
  for (std::size_t i = 0; i < known.wanted.size(); ++i) {
    const std::size_t output = spec_.inputs + i;
    if (known.wanted[i].shape) make_again(output, known.wanted[i], call, made[i]);
  }
  for (const std::size_t i : known.pointers) {
    const auto from = static_cast<std::size_t>(spec_.arguments[i].operand);
    const bool given = from < call.count && call.operands[from].kind == KILN_OPERAND_TENSOR;
    const kiln_tensor& t = given ? *call.operands[from].tensor : made[from - spec_.inputs];
    addresses[i] = address_of(t, from);
    data[i] = &addresses[i];
  }
  launch(call, *kernel, data.data(), known.storage.size());
  return true;
}

void Operator::make_again(std::size_t output, const kiln_tensor& wanted, const kiln_call& call,
                          kiln_tensor& out) const {
  allocate(output, wanted, call, out);
  const bool same =
      out.ndim == wanted.ndim && std::equal(out.shape, out.shape + out.ndim, wanted.shape) &&
      (out.strides ? std::equal(out.strides, out.strides + out.ndim, wanted.strides) : is_contiguous(wanted));
  if (!same)
    reader_.fail(operand(output).name + ": the caller's allocator made " + described(out) + ", expected " +
                 described(wanted));
}

bool Operator::is_left_out(std::size_t argument, const CallFrame& frame) const {
  const BindArgument& a = spec_.arguments[argument];
  return a.kind == BindArgument::Kind::left_out ||
         (a.kind == BindArgument::Kind::tensor && !frame.tensors[static_cast<std::size_t>(a.operand)]);
}

void Operator::remember(const kiln_call& call, const LoadedKernel& kernel, std::uint64_t changes,
                        const CallFrame& frame) const {
  if (remembered_.back().load(std::memory_order_acquire) && !remembered(call)) return;  // full
  std::unique_ptr<Remembered> made(new Remembered{CallShape(call), {&kernel}, {changes}, {}, {}, {}, {}});
  if (made->shape.empty()) return;
  std::size_t count = writer_.count();  // a launch need not give what the kernel's own defaults say
  while (count > 0 && manifest_.arguments[count - 1].optional && is_left_out(count - 1, frame)) --count;
  for (std::size_t i = 0; i < count; ++i) {
    const BindArgument& a = spec_.arguments[i];
    std::memcpy(&made->storage.emplace_back(), frame.data[i], sizeof(std::uint64_t));
    if (a.kind == BindArgument::Kind::tensor && frame.tensors[static_cast<std::size_t>(a.operand)])
      made->pointers.push_back(i), made->storage.back() = 0;
  }
  made->wanted.resize(spec_.operands.size() - spec_.inputs);
  made->extents.resize(made->wanted.size());
  for (std::size_t i = 0; i < made->wanted.size(); ++i) {
    const std::size_t output = spec_.inputs + i;
    if (output < call.count && call.operands[output].kind == KILN_OPERAND_TENSOR) continue;
    const kiln_tensor& t = *frame.tensors[output];
    std::vector<std::int64_t>& numbers = made->extents[i];
    for (int d = 0; d < t.ndim; ++d) numbers.push_back(t.shape[d]);
    for (int d = 0; d < t.ndim; ++d) numbers.push_back(stride_of(t, d));
    numbers.push_back(0);  // so that there is an address, for a tensor without dimensions too
    made->wanted[i] = t;
    made->wanted[i].data = nullptr, made->wanted[i].byte_offset = 0;
    made->wanted[i].shape = numbers.data(), made->wanted[i].strides = numbers.data() + t.ndim;
  }
  for (auto& entry : remembered_) {
    const Remembered* present = nullptr;
    if (entry.compare_exchange_strong(present, made.get(), std::memory_order_acq_rel)) {
      static_cast<void>(made.release());  // the operator's now
      return;
    }
    if (present->shape != made->shape) continue;
    // Another thread was first, or another kernel serves now: the entry is for that one when only the kernel differs.
    const std::lock_guard lock(mutex_);
    if (present->storage == made->storage && present->extents == made->extents &&
        changes > present->changes.load(std::memory_order_relaxed)) {
      present->kernel.store(&kernel, std::memory_order_relaxed);
      present->changes.store(changes, std::memory_order_release);
    }
    return;
  }
}

// ---- the kernel

void Operator::take_parameters(const CallFrame& frame, std::int64_t* values) const {
  const std::size_t count = packed_parameters_.size();
  for (std::size_t p = 0; p < count; ++p) {
    const int entry = packed_parameters_[p];
    if (entry < 0) {
      values[p] = kNoValue;
      continue;
    }
    const source::BindParameter& parameter = spec_.parameters[static_cast<std::size_t>(entry)];
    const bool absent =
        parameter.unless_absent >= 0 && !frame.is_given(static_cast<std::size_t>(parameter.unless_absent));
    const std::int64_t value = absent ? kNoValue : parameter.value.evaluate(frame.slots);
    values[p] = parameter.picks_member ? manifest_.family->edges.edge_of(value) : value;
  }
}

const LoadedKernel* Operator::make_ready(const std::int64_t* values, const kiln_call& call) const {
  GetRequest request;
  request.stream = reinterpret_cast<toolchain::CUstream>(call.stream);
  request.may_compile = call.no_compile == 0, request.past_seal = call.past_seal != 0;
  const std::vector<Value> given = values_of(values);
  if (template_.target().context) return &template_.get(given, request);
  template_.compile(given, request);
  return nullptr;
}

std::vector<Value> Operator::values_of(const std::int64_t* values) const {
  std::vector<Value> out;
  for (std::size_t p = 0; p < packed_parameters_.size(); ++p) {
    const source::ParameterSpec& spec = manifest_.parameters[p];
    if (values[p] == kNoValue) {
      out.emplace_back();
      continue;
    }
    switch (spec.kind) {
      case source::ParameterKind::dtype:
        out.emplace_back(static_cast<Dtype>(values[p]));
        break;
      case source::ParameterKind::integer:
        out.emplace_back(values[p]);
        break;
      case source::ParameterKind::boolean:
        out.emplace_back(values[p] != 0);
        break;
      default: {
        const auto same = [&](const auto& choice) { return choice.value == values[p]; };
        const auto found = std::find_if(spec.choices.begin(), spec.choices.end(), same);
        if (found == spec.choices.end())
          reader_.fail("parameter " + spec.name + " has no choice " + std::to_string(values[p]));
        out.emplace_back(found->name);
      }
    }
  }
  return out;
}

// ---- outputs

void Operator::make_outputs(const kiln_call& call, CallFrame& frame) const {
  for (std::size_t i = spec_.inputs; i < spec_.operands.size(); ++i) {
    if (!frame.tensors[i]) make_output(i, call, frame);
    reader_.check_tensor(i, frame);
  }
}

/// Lets the caller make the tensor of an operand.
void Operator::allocate(std::size_t i, const kiln_tensor& wanted, const kiln_call& call,
                        kiln_tensor& out) const {
  if (!call.allocate)
    reader_.fail("output " + operand(i).name + " is not given, and the call has no allocator");
  out = wanted;
  if (call.allocate(i, &wanted, &out, call.user) != 0)
    reader_.fail(operand(i).name + ": the caller's allocator failed");
}

void Operator::make_output(std::size_t i, const kiln_call& call, CallFrame& frame) const {
  const BindOperand& o = operand(i);
  const source::BindShape& shape = o.shapes[0];
  std::int64_t* const extents = &frame.extents[i * kMaxRank];
  std::int64_t* const strides = &frame.strides[i * kMaxRank];
  int rank = 0;
  if (shape.leading) {
    const auto from = static_cast<std::size_t>(spec_.leading);
    const auto named = static_cast<int>(operand(from).shapes[0].extents.size());
    const kiln_tensor& t = *frame.tensors[from];
    for (; rank < t.ndim - named; ++rank) extents[rank] = t.shape[rank];
  }
  if (rank + static_cast<int>(shape.extents.size()) > kMaxRank)
    reader_.fail(o.name + " has more than " + std::to_string(kMaxRank) + " dimensions");
  for (const source::Expression& extent : shape.extents) {
    extents[rank] = extent.evaluate(frame.slots);
    if (extents[rank] < 0)
      reader_.fail("output " + o.name + " has an extent of " + std::to_string(extents[rank]));
    ++rank;
  }
  write_contiguous_strides(extents, rank, strides);
  for (std::size_t d = 0; d < o.strides.size(); ++d) strides[d] = o.strides[d].evaluate(frame.slots);
  const Dtype dtype = reader_.wanted_dtype(i, frame);
  kiln_tensor wanted{};
  wanted.device_type = 2, wanted.device_id = template_.target().device.ordinal;
  for (std::size_t j = 0; j < spec_.inputs; ++j) {
    if (!frame.tensors[j]) continue;
    wanted.device_type = frame.tensors[j]->device_type, wanted.device_id = frame.tensors[j]->device_id;
    break;
  }
  wanted.ndim = rank, wanted.shape = extents, wanted.strides = strides;
  wanted.dtype_code = dlpack_code(dtype), wanted.dtype_lanes = 1;
  wanted.dtype_bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
  allocate(i, wanted, call, frame.made[i]);
  frame.tensors[i] = &frame.made[i];
}

// ---- arguments

/// Takes a contiguous copy of an input whose layout the kernel does not read, and the arguments from the copy.
/// Returns true when the tensors stay as they were given.
bool Operator::check_layouts(const kiln_call& call, CallFrame& frame) const {
  bool copied = false;
  for (const source::BindLayout& layout : spec_.layouts) {
    const auto i = static_cast<std::size_t>(layout.operand);
    const kiln_tensor* const t = frame.tensors[i];
    if (!t || writer_.suits(layout, *t, frame)) [[likely]]
      continue;
    if (operand(i).written || !call.allocate)
      reader_.fail(operand(i).name + " is " + described(*t) + ", a layout that the kernel does not " +
                   (operand(i).written ? "write" : "read") + ": make it contiguous");
    kiln_tensor wanted = *t;  // the caller copies from this tensor, and only its strides are new
    std::int64_t* const strides = &frame.strides[i * kMaxRank];
    write_contiguous_strides(t->shape, t->ndim, strides);
    wanted.strides = strides;
    allocate(i, wanted, call, frame.made[i]);
    frame.tensors[i] = &frame.made[i];
    if (!is_contiguous(*frame.tensors[i]))
      reader_.fail(operand(i).name + ": the caller's copy is not contiguous");
    copied = true;
  }
  if (!copied) return true;
  reader_.read_again(frame);
  writer_.write(frame);
  return false;
}

}  // namespace kiln::runtime
