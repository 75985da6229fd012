#include "tools/kiln/run/case.hpp"

#include <utility>

#include "base/text.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/run/fill_values.hpp"

namespace kiln::cli {

using Kind = source::ArgumentType::Kind;

RunCase::RunCase(runtime::Service& service, PrimaryContext& gpu, runtime::KernelTemplate& opened,
                 const source::Resolved& resolved, const GivenArguments& given,
                 const std::vector<compile::ExportFact>& exports)
    : service_(service),
      gpu_(gpu),
      opened_(opened),
      resolved_(resolved),
      values_(manifest(), resolved_, gpu.facts(), given, exports) {
  size_buffers();
}

bool RunCase::is_of_work_list(std::size_t argument) const noexcept {
  const auto& list = manifest().work_list;
  return list && (std::cmp_equal(argument, list->argument) || std::cmp_equal(argument, list->workspace));
}

void RunCase::refuse_empty(const source::ArgumentSpec& a, std::size_t dimension, std::int64_t extent) const {
  const std::string& text = a.shape[dimension].text();
  throw Error(Errc::invalid_value,
              "argument '" + a.name + "' of template '" + manifest().name + "' would have no elements: " +
                  (text == std::to_string(extent) ? "dimension " + std::to_string(dimension) : text) +
                  " of its shape is " + std::to_string(extent) +
                  "; `kiln run` needs at least one element to launch, compare or time");
}

void RunCase::size_buffers() {
  const auto& arguments = manifest().arguments;
  elements_.assign(arguments.size(), 0);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const source::ArgumentSpec& a = arguments[i];
    if (manifest().work_list && std::cmp_equal(i, manifest().work_list->argument)) {
      elements_[i] = RunWorkList::words(manifest(), values_.slots());
      continue;
    }
    if (a.type.kind != Kind::pointer || (!a.exists.empty() && a.exists.evaluate(values_.slots()) == 0))
      continue;
    if (a.shape.empty())
      throw Error(Errc::manifest, manifest().file + ": argument '" + a.name +
                                      "' has no shape, so `kiln run` cannot make its data");
    std::int64_t last = 0, step = 1;
    for (std::size_t d = a.shape.size(); d-- > 0;) {
      const std::int64_t extent = a.shape[d].evaluate(values_.slots());
      if (extent <= 0) refuse_empty(a, d, extent);
      last += (extent - 1) * (a.stride.empty() ? step : a.stride[d].evaluate(values_.slots()));
      step *= extent;
    }
    elements_[i] = static_cast<std::uint64_t>(last) + 1;
  }
}

Dtype RunCase::dtype_of(std::size_t argument) const {
  const source::ArgumentType& type = manifest().arguments[argument].type;
  if (type.dtype_parameter >= 0)
    return static_cast<Dtype>(values_.slots()[static_cast<std::size_t>(type.dtype_parameter)]);
  return type.dtype.value_or(Dtype::u8);
}

bool RunCase::is_written(std::size_t argument) const {
  return elements_[argument] > 0 && !is_of_work_list(argument) &&
         manifest().arguments[argument].access != source::Access::read;
}

std::uint64_t RunCase::set_bytes() const noexcept {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (elements_[i]) total += elements_[i] * size_of(dtype_of(i));
  }
  return total;
}

const runtime::LoadedKernel& RunCase::own_kernel(const std::string& name, std::vector<Value> values) const {
  return service_.open(name, KILN_DEVICE_CURRENT, "").get(values, {});
}

void RunCase::fill(std::size_t argument, Buffer& buffer, std::uint64_t seed) {
  using FillKind = source::ArgumentSpec::Fill::Kind;
  const source::ArgumentSpec::Fill& f = manifest().arguments[argument].fill;
  double a = f.a, b = f.b;
  if (f.kind == FillKind::kernel) return fill_by_kernel(argument, buffer, seed);
  if (f.kind == FillKind::permutation || f.kind == FillKind::offsets || f.kind == FillKind::lengths)
    return fill_from_host(argument, buffer, seed);
  if (f.kind == FillKind::integer) {
    const std::int64_t low = f.low.evaluate(values_.slots()), high = f.high.evaluate(values_.slots());
    constexpr std::int64_t exact = 1 << 24;  // largest exact integer of f32, which the kernel takes
    if (low > high || (holds_indices(dtype_of(argument)) && (low < -exact || high > exact)))
      return fill_from_host(argument, buffer, seed);
    a = static_cast<double>(low), b = static_cast<double>(high);
  }
  constexpr const char* names[] = {"normal", "uniform", "int", "const"};
  auto& kernel = own_kernel("kiln_fill", {dtype_of(argument), names[static_cast<int>(f.kind)]});
  ArgumentList arguments;
  arguments.pointer(buffer.address())
      .integer(static_cast<std::int64_t>(elements_[argument]))
      .integer(static_cast<std::int64_t>(seed));
  arguments.number(a).number(b).launch(kernel, nullptr);
}

void RunCase::fill_by_kernel(std::size_t argument, Buffer& buffer, std::uint64_t seed) {
  auto found = fill_kernels_.find(argument);
  if (found == fill_kernels_.end()) {
    const source::ArgumentSpec& spec = manifest().arguments[argument];
    found = fill_kernels_
                .try_emplace(argument, service_, gpu_, opened_, resolved_, spec.fill.instantiate, spec.name)
                .first;
  }
  found->second.launch(buffer, elements_[argument], seed);
}

void RunCase::fill_from_host(std::size_t argument, Buffer& buffer, std::uint64_t seed) const {
  using FillKind = source::ArgumentSpec::Fill::Kind;
  const source::ArgumentSpec& spec = manifest().arguments[argument];
  const std::string what = "the fill of argument '" + spec.name + '\'';
  const std::uint64_t n = elements_[argument];
  std::vector<std::int64_t> values;
  if (spec.fill.kind == FillKind::permutation) {
    values = random_permutation(n, seed);
  } else if (spec.fill.kind == FillKind::offsets) {
    const std::int64_t total = spec.fill.high.evaluate(values_.slots());
    if (total < 0 || (n < 2 && total > 0))
      throw Error(Errc::invalid_value, what + ": indptr(" + std::to_string(total) + ") of " +
                                           std::to_string(n) +
                                           " entries; the total must not be negative, and a total above 0 "
                                           "needs at least two entries");
    values = random_offsets(n, total, seed);
  } else if (spec.fill.kind == FillKind::lengths) {
    values = work_list_->array(spec.fill.lengths);
    if (values.size() != n)
      throw Error(Errc::invalid_value, what + ": work_list(" + spec.fill.lengths + ") has " +
                                           std::to_string(values.size()) + " entries, but its shape has " +
                                           std::to_string(n));
  } else {
    const std::int64_t low = spec.fill.low.evaluate(values_.slots()),
                       high = spec.fill.high.evaluate(values_.slots());
    if (low > high)
      throw Error(Errc::invalid_value, what + ": int(" + std::to_string(low) + ", " + std::to_string(high) +
                                           ") is empty: the lower bound comes first");
    values = random_integers(n, low, high, seed);
  }
  const std::string bytes = cli::elements_of(values, dtype_of(argument), what);
  upload(buffer, bytes.data(), bytes.size(), what);
}

void RunCase::upload(const Buffer& buffer, const void* data, std::size_t bytes,
                     const std::string& what) const {
  gpu_.driver().check(gpu_.driver().cuMemcpyHtoD(buffer.address(), data, bytes), "cuMemcpyHtoD", what);
}

BufferSet RunCase::make_buffers(std::uint64_t seed) {
  BufferSet out(elements_.size());
  if (manifest().work_list) work_list_.emplace(manifest(), values_.slots(), seed);
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (elements_[i] == 0) continue;
    out[i] = Buffer(gpu_.driver(), elements_[i] * size_of(dtype_of(i)));
    if (manifest().work_list && std::cmp_equal(i, manifest().work_list->argument)) {
      const std::vector<std::int32_t> words = work_list_->make();
      upload(out[i], words.data(), words.size() * sizeof words[0], "the work list");
    }
    if (is_of_work_list(i)) continue;  // a workspace keeps its poison
    if (manifest().arguments[i].access != source::Access::write) fill(i, out[i], seed * 1000 + i);
  }
  gpu_.driver().check(gpu_.driver().cuCtxSynchronize(), "cuCtxSynchronize", "filling the inputs");
  return out;
}

std::vector<toolchain::CUdeviceptr> RunCase::addresses_of(const BufferSet& buffers) {
  std::vector<toolchain::CUdeviceptr> out;
  for (const Buffer& buffer : buffers) out.push_back(buffer.address());
  return out;
}

void RunCase::launch(const runtime::LoadedKernel& kernel,
                     const std::vector<toolchain::CUdeviceptr>& addresses, toolchain::CUstream stream) const {
  ArgumentList list;
  const auto& arguments = manifest().arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto slot = static_cast<std::size_t>(manifest().slots.argument_slot(static_cast<int>(i)));
    if (arguments[i].type.kind == Kind::pointer)
      list.pointer(addresses[i]);
    else if (arguments[i].type.is_float())
      list.number(values_.number_of(i));
    else
      list.integer(values_.slots()[slot]);
  }
  for (std::size_t i = 0; i < manifest().runtime.size(); ++i) {
    list.integer(
        values_.slots()[static_cast<std::size_t>(manifest().slots.runtime_slot(static_cast<int>(i)))]);
  }
  list.launch(kernel, stream);
}

}  // namespace kiln::cli
