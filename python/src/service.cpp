#include "service.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arguments.hpp"
#include "blobs.hpp"
#include "holder.hpp"
#include "kernel.hpp"
#include "operator_type.hpp"
#include "parameters.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kiln::python {
namespace {

using Text = std::optional<std::string>;

const char* c_text(const Text& text) { return text ? text->c_str() : nullptr; }

kiln_get waiting(double deadline, nb::handle stream) {
  kiln_get get{sizeof(kiln_get), deadline, nullptr, 0};
  if (stream.is_none()) return get;
  void* handle = nullptr;
  if (!stream_handle(stream.ptr(), &handle)) throw nb::python_error();
  get.stream = static_cast<CUstream>(handle);
  get.has_stream = 1;
  return get;
}

class Image {
 public:
  Image() { raw.struct_size = sizeof raw; }
  Image(const Image&) = delete;
  ~Image() { kiln_image_release(&raw); }
  kiln_image raw{};
};

struct Template {
  std::shared_ptr<Holder> holder;
  kiln_template* handle;
  int device;

  /// Takes the options of a get from its named arguments. A parameter with such a name must be given by position.
  static kiln_get options_of(nb::kwargs& named) {
    double deadline = 0;
    nb::object stream = nb::none();
    if (named.contains("deadline")) deadline = nb::cast<double>(nb::object(named.attr("pop")("deadline")));
    if (named.contains("stream")) stream = named.attr("pop")("stream");
    return waiting(deadline, stream);
  }
  nb::object get(nb::args positional, nb::kwargs named) const {
    const kiln_get options = options_of(named);
    bool fallback = false;
    if (named.contains("fallback")) fallback = nb::cast<bool>(nb::object(named.attr("pop")("fallback")));
    const Parameters p(positional, named);
    const kiln_kernel* out = nullptr;
    const auto make = fallback ? kiln_template_get_or_fallback : kiln_template_get;
    call(holder, [&] { return make(handle, p.names(), p.values(), p.count(), &options, &out); });
    return make_kernel(out, holder, device);
  }
  nb::object get_family(nb::args positional, nb::kwargs named) const {
    const kiln_get options = options_of(named);
    const Parameters p(positional, named);
    const kiln_family* out = nullptr;
    call(holder,
         [&] { return kiln_template_get_family(handle, p.names(), p.values(), p.count(), &options, &out); });
    return make_family(out, holder, device);
  }
  nb::object try_get(nb::args positional) const {
    const Parameters p(positional, nb::dict());
    const Holder::Call guard(*holder);
    const kiln_kernel* const out = kiln_template_try_get(handle, p.values(), p.count());
    return out ? make_kernel(out, holder, device) : nb::none();
  }
  void prefetch(nb::args positional, nb::kwargs named) const {
    const Parameters p(positional, named);
    call(holder, [&] { return kiln_template_prefetch(handle, p.names(), p.values(), p.count()); });
  }
  Image* compile(nb::args positional, nb::kwargs named) const {
    const Parameters p(positional, named);
    auto out = std::make_unique<Image>();
    call(holder, [&] { return kiln_template_compile(handle, p.names(), p.values(), p.count(), &out->raw); });
    return out.release();
  }
};

/// A plan that is being made ready. Must end before its service is closed.
class Preparation {
 public:
  Preparation(std::shared_ptr<Holder> holder, kiln_preparation* handle)
      : holder_(std::move(holder)), handle_(handle) {}
  Preparation(const Preparation&) = delete;
  ~Preparation() { end(); }

  /// Waits at most `seconds` and returns (done, counts). Raises the first failure once all is done.
  nb::tuple wait(double seconds) {
    kiln_progress p{};
    p.struct_size = sizeof p;
    if (!handle_) throw nb::value_error("this preparation has ended");
    kiln_status status;
    {
      const Holder::Call guard(*holder_);
      const nb::gil_scoped_release release;
      status = kiln_preparation_wait(handle_, seconds, &p);
    }
    const bool over = status == KILN_OK || (p.total > 0 && p.done == p.total);
    if (over) check(status);
    return nb::make_tuple(
        over, nb::make_tuple(p.total, p.done, p.ready, p.disk, p.compiled, p.waited, p.failed, p.skipped));
  }
  void end() {
    if (!handle_) return;
    const nb::gil_scoped_release release;
    kiln_preparation_destroy(std::exchange(handle_, nullptr));
  }

 private:
  std::shared_ptr<Holder> holder_;
  kiln_preparation* handle_;
};

class Service {
 public:
  Service(int mode, bool hermetic, int jobs, double compile_deadline, bool adopt, const Text& cache_dir,
          const Text& cache_layers, const Text& cache_max_size, const Text& template_path,
          const Text& include_path, const Text& cuda_home, const Text& toolchain, const Text& arch,
          const Text& worker, const Text& record, const Text& compile_memory) {
    kiln_options o{};
    o.struct_size = sizeof o;
    o.mode = mode, o.hermetic = hermetic, o.jobs = jobs, o.compile_deadline_s = compile_deadline,
    o.adopt = adopt;
    o.cache_dir = c_text(cache_dir), o.cache_layers = c_text(cache_layers),
    o.cache_max_size = c_text(cache_max_size);
    o.template_path = c_text(template_path), o.include_path = c_text(include_path),
    o.cuda_home = c_text(cuda_home);
    o.toolchain = c_text(toolchain), o.arch = c_text(arch), o.worker = c_text(worker),
    o.record = c_text(record);
    o.compile_memory = c_text(compile_memory);
    kiln_service* handle = nullptr;
    kiln_status status;
    {
      const nb::gil_scoped_release release;
      status = kiln_service_create(&o, &handle);
    }
    check(status);
    holder_ = std::make_shared<Holder>(handle);
  }

  void close() { holder_->close(); }
  bool closed() const { return holder_->closed(); }

  Template open(const std::string& name, int device, const Text& arch) {
    kiln_template* out = nullptr;
    call(holder_, [&] { return kiln_service_open(handle(), name.c_str(), device, c_text(arch), &out); });
    return {holder_, out, device};
  }
  nb::object open_operator(const std::string& name, int device, const Text& arch) {
    kiln_operator* out = nullptr;
    call(holder_,
         [&] { return kiln_service_open_operator(handle(), name.c_str(), device, c_text(arch), &out); });
    return bind_operator(out, holder_);
  }
  std::string describe_operators(const Text& name) {
    return take_text(
        [&](kiln_text* out) { return kiln_service_describe_operators(handle(), c_text(name), out); });
  }
  nb::object open_blobs(const std::string& space, const std::string& compatibility, std::uint64_t budget,
                        bool refuse_when_sealed, bool behind) {
    return python::open_blobs(holder_, space, compatibility, budget, refuse_when_sealed, behind);
  }
  std::string describe_blobs() {
    return take_text([&](kiln_text* out) { return kiln_service_describe_blobs(handle(), out); });
  }
  void add_template(const std::string& manifest, const std::string& source, const Text& reference) {
    call(holder_, [&] {
      return kiln_service_add_template(handle(), manifest.c_str(), source.c_str(), c_text(reference));
    });
  }
  void add_template_path(const std::string& path) {
    call(holder_, [&] { return kiln_service_add_template_path(handle(), path.c_str()); });
  }
  Preparation* prepare(const Text& plan, const Text& file, bool until_image, int device, const Text& arch,
                       double deadline, bool may_compile) {
    kiln_prepare p{};
    p.struct_size = sizeof p;
    p.plan = c_text(plan), p.file = c_text(file), p.until = until_image ? KILN_UNTIL_IMAGE : KILN_UNTIL_READY;
    p.device = device, p.arch = c_text(arch), p.deadline_s = deadline, p.no_compile = !may_compile;
    kiln_preparation* out = nullptr;
    call(holder_, [&] { return kiln_service_prepare(handle(), nullptr, &p, &out); });
    return new Preparation(holder_, out);
  }
  void seal() {
    call(holder_, [&] { return kiln_service_seal(handle()); });
  }
  std::string missing() {
    return take_text([&](kiln_text* out) { return kiln_service_missing(handle(), out); });
  }
  std::string fingerprint() {
    char out[33] = {};
    call(holder_, [&] { return kiln_service_fingerprint(handle(), out); });
    return out;
  }
  std::string describe_fingerprint() {
    return take_text([&](kiln_text* out) { return kiln_service_describe_fingerprint(handle(), out); });
  }
  uint64_t adopt() {
    uint64_t adopted = 0;
    call(holder_, [&] { return kiln_service_adopt(handle(), &adopted); });
    return adopted;
  }
  nb::list device_faults() {
    struct Fault {
      std::string of, specialization, reason;
      int32_t code, device;
      uint32_t launches;
    };
    std::vector<Fault> faults;
    const kiln_device_fault_callback add = [](const kiln_device_fault* f, void* to) {
      static_cast<std::vector<Fault>*>(to)->push_back(
          {f->template_name, f->specialization, f->reason, f->code, f->device, f->launches});
    };
    call(holder_, [&] { return kiln_service_device_faults(handle(), add, &faults); });
    const nb::object made = nb::module_::import_("kiln._values").attr("DeviceFault");
    nb::list out;
    for (const Fault& f : faults)
      out.append(made(f.of, f.specialization, f.reason, f.code, f.device, f.launches));
    return out;
  }
  nb::dict stats() {
    kiln_stats s{};
    s.struct_size = sizeof s;
    call(holder_, [&] { return kiln_service_stats(handle(), &s); });
    nb::dict out;
#define KILN_COUNTER(name) out[#name] = s.name
    KILN_COUNTER(memory_hits);
    KILN_COUNTER(disk_hits);
    KILN_COUNTER(layer_hits);
    KILN_COUNTER(foreign_toolchain);
    KILN_COUNTER(other_arch);
    KILN_COUNTER(compiles);
    KILN_COUNTER(compile_failures);
    KILN_COUNTER(remembered_failures);
    KILN_COUNTER(waits);
    KILN_COUNTER(miss_absent);
    KILN_COUNTER(miss_damaged);
    KILN_COUNTER(miss_other_key_text);
    KILN_COUNTER(miss_gate_timeout);
    KILN_COUNTER(miss_unreadable);
    KILN_COUNTER(miss_no_store);
    KILN_COUNTER(puts);
    KILN_COUNTER(puts_present);
    KILN_COUNTER(puts_skipped);
    KILN_COUNTER(skipped_read_only);
    KILN_COUNTER(skipped_gate_timeout);
    KILN_COUNTER(skipped_full);
    KILN_COUNTER(skipped_failed);
    KILN_COUNTER(skipped_queue_full);
    KILN_COUNTER(convoy_left);
    KILN_COUNTER(flight_timeouts);
    KILN_COUNTER(unpublishable);
    KILN_COUNTER(sealed_misses);
    KILN_COUNTER(loads);
    KILN_COUNTER(device_bytes);
    KILN_COUNTER(evictions);
    KILN_COUNTER(fallbacks);
    KILN_COUNTER(adopted);
    KILN_COUNTER(compile_ms);
    KILN_COUNTER(compile_saved_ms);
#undef KILN_COUNTER
    return out;
  }

 private:
  kiln_service* handle() const { return holder_->service(); }
  /// The text that `give(kiln_text*)` gives.
  template <class Give>
  std::string take_text(const Give& give) {
    kiln_text text{};
    text.struct_size = sizeof text;
    call(holder_, [&] { return give(&text); });
    std::string out(text.data, text.size);
    kiln_text_release(&text);
    return out;
  }
  std::shared_ptr<Holder> holder_;
};

nb::bytes bytes_of(const Image& image) { return nb::bytes(image.raw.bytes, image.raw.size); }

}  // namespace

void add_service(nb::module_& m) {
  nb::class_<Image>(m, "Image")
      .def_prop_ro(
          "outcome",
          [](const Image& i) { return nb::module_::import_("kiln._values").attr("OUTCOMES")[i.raw.outcome]; })
      .def_prop_ro("key", [](const Image& i) { return std::string(i.raw.key); })
      .def_prop_ro("arch", [](const Image& i) { return std::string(i.raw.arch); })
      .def_prop_ro("lowered_name", [](const Image& i) { return std::string(i.raw.lowered_name); })
      .def_prop_ro("specialization", [](const Image& i) { return std::string(i.raw.specialization); })
      .def_prop_ro("cubin", bytes_of)
      .def("bytes", bytes_of)
      .def("size", [](const Image& i) { return i.raw.size; })
      .def("__repr__", [](const Image& i) {
        return "<kiln.Image " + std::string(i.raw.specialization) + ' ' + i.raw.arch + '>';
      });

  nb::class_<Template>(m, "Template")
      .def("get", &Template::get)
      .def("get_family", &Template::get_family)
      .def("try_get", &Template::try_get)
      .def("prefetch", &Template::prefetch)
      .def("compile", &Template::compile);

  nb::class_<Preparation>(m, "Preparation").def("wait", &Preparation::wait).def("end", &Preparation::end);

  nb::class_<Service>(m, "Service", nb::is_weak_referenceable())
      .def(nb::init<int, bool, int, double, bool, const Text&, const Text&, const Text&, const Text&,
                    const Text&, const Text&, const Text&, const Text&, const Text&, const Text&,
                    const Text&>(),
           "mode"_a, "hermetic"_a, "jobs"_a, "compile_deadline"_a, "adopt"_a, "cache_dir"_a.none(),
           "cache_layers"_a.none(), "cache_max_size"_a.none(), "template_path"_a.none(),
           "include_path"_a.none(), "cuda_home"_a.none(), "toolchain"_a.none(), "arch"_a.none(),
           "worker"_a.none(), "record"_a.none(), "compile_memory"_a.none())
      .def("close", &Service::close)
      .def_prop_ro("closed", &Service::closed)
      .def("open", &Service::open, "name"_a, "device"_a, "arch"_a.none())
      .def("open_operator", &Service::open_operator, "name"_a, "device"_a, "arch"_a.none())
      .def("describe_operators", &Service::describe_operators, "name"_a.none())
      .def("open_blobs", &Service::open_blobs, "space"_a, "compatibility"_a, "budget"_a,
           "refuse_when_sealed"_a, "behind"_a)
      .def("describe_blobs", &Service::describe_blobs)
      .def("add_template_path", &Service::add_template_path, "path"_a)
      .def("add_template", &Service::add_template, "manifest"_a, "source"_a, "reference"_a = nb::none())
      .def("begin", &Service::prepare, "plan"_a.none(), "file"_a.none(), "until_image"_a, "device"_a,
           "arch"_a.none(), "deadline"_a, "may_compile"_a)
      .def("seal", &Service::seal)
      .def("missing", &Service::missing)
      .def("fingerprint", &Service::fingerprint)
      .def("describe_fingerprint", &Service::describe_fingerprint)
      .def("adopt", &Service::adopt)
      .def("device_faults", &Service::device_faults)
      .def("stats", &Service::stats);
}

}  // namespace kiln::python
