// A template's manifest as data. The grammar is docs/reference/manifest.md; parse_manifest is the only reader
// of TOML manifests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arch.hpp"
#include "expression/expression.hpp"
#include "kiln/dtype.hpp"
#include "manifest/bind/spec.hpp"
#include "manifest/family/family.hpp"
#include "manifest/tensor_map.hpp"
#include "manifest/work_list.hpp"

namespace kiln::source {

/// The number that a manifest says as `format`.
inline constexpr int kManifestFormat = 1;

enum class ParameterKind { dtype, integer, boolean, enumeration, type };
std::string_view to_string(ParameterKind kind) noexcept;  ///< as the manifest says it: "int"
enum class Access { read, write, readwrite };

struct ParameterSpec {
  struct Choice {
    std::string name;      ///< "silu", "bf16", "4096"
    std::int64_t value{};  ///< dtype ordinal, integer, or declaration order of an enum or type
    std::string cpp;       ///< the C++ text, with {P} for other parameters; literal braces are doubled
    std::string include;   ///< header that this C++ text needs; empty: none
  };
  std::string name, doc;
  ParameterKind kind = ParameterKind::integer;
  std::vector<Choice> choices;        ///< empty for a range or an unbounded int, and for bool
  std::vector<std::string> includes;  ///< headers that every value's C++ text needs
  std::optional<std::pair<std::int64_t, std::int64_t>> range;  ///< inclusive
  Expression default_value;                                    ///< empty: the caller must give a value
  std::vector<std::int64_t> tune;
};

/// Text of a parameter's default. The manifest's reader made numbers of booleans and names; they are written
/// as words again. REQUIRES: the parameter has a default.
std::string default_text(const ParameterSpec& parameter);

/// Pointers to elements have `dtype`, or the parameter that names it. Structs have `struct_bytes`.
struct ArgumentType {
  enum class Kind { pointer, i32, i64, u32, u64, f32, f64, structure, tensormap };
  /// The meaning of a u64: cudaTextureObject_t and cudaSurfaceObject_t are handles of that width.
  enum class Handle { none, texture, surface };
  Kind kind = Kind::pointer;
  std::optional<Dtype> dtype;      ///< ptr<f32>
  int dtype_parameter = -1;        ///< ptr<T>: index of T; -1 without a dtype: ptr<void>
  std::uint32_t struct_bytes = 0;  ///< 0: a struct of the size that the image says
  Handle handle = Handle::none;
  bool is_float() const noexcept { return kind == Kind::f32 || kind == Kind::f64; }
  /// Bytes that the kernel argument takes: 8 for pointers, 128 for tensor maps, 0 when only the image knows.
  std::uint32_t size() const noexcept;
  std::string to_string(const std::vector<ParameterSpec>& parameters) const;  ///< as written: "ptr<T>"
};

constexpr bool is_integer(ArgumentType::Kind kind) noexcept {
  using Kind = ArgumentType::Kind;
  return kind == Kind::i32 || kind == Kind::i64 || kind == Kind::u32 || kind == Kind::u64;
}

struct ArgumentSpec {
  struct Fill {
    enum class Kind { normal, uniform, integer, constant, permutation, offsets, kernel, lengths };
    Kind kind = Kind::normal;
    double a = 0, b = 1;        ///< normal: mean, sd; uniform: lo, hi; constant: value
    Expression low{}, high{};   ///< integer: inclusive; offsets: `high` is the last entry
    std::string instantiate{};  ///< kernel: its C++ text with {P}
    std::string lengths{};      ///< lengths: array of the batch that the work list is for
  };
  std::string name, doc;
  ArgumentType type;
  Access access = Access::read;
  std::vector<Expression> shape, stride;  ///< in elements; empty `stride`: contiguous
  Expression align;                       ///< bytes; empty: the element's alignment
  Expression value;                       ///< of an integer; empty: none
  std::optional<double> float_value;      ///< for f32, f64
  bool optional = false;
  Expression exists;  ///< empty: always
  Fill fill;
};

/// A number or a null pointer that the kernel is passed, and that no call gives.
struct PassedConstant {
  ArgumentType::Kind kind = ArgumentType::Kind::pointer;  ///< a number, or a pointer, which is null
  Expression value;                                       ///< of a number; empty: `number`
  double number = 0;                                      ///< of an f32 or f64 without an expression
  std::string text;                                       ///< "null", "u32 N * 2"
};
inline constexpr std::size_t kMaxConstants = 32;

struct RuntimeValueSpec {
  std::string name, doc;
  Expression value;  ///< empty: `kiln run` must be given a value
};

struct LaunchSpec {
  std::vector<Expression> grid, block, cluster;  ///< 1 to 3 each; cluster may be empty
  Expression smem;                               ///< empty: 0
  bool pdl = false, cooperative = false;
};

/// Source, name expression and geometry of the kernel or of its reference.
struct EntryPoint {
  std::string source;       ///< relative to the manifest
  std::string instantiate;  ///< with {P}
  LaunchSpec launch;
};

struct Requirement {
  Expression expression;
  std::string message;     ///< with {NAME}
  bool at_launch = false;  ///< reads an argument, run-time value or device fact
};

struct PrewarmRow {
  /// Each parameter with its texts, in the row's order.
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
  std::vector<std::string> archs;  ///< empty: the caller's default
  int line = 0;
};

enum class HostHeaders { none, shim };

/// The stub that stands for each header of [compile] empty.
inline constexpr const char* kEmptyHeader = "empty.h";

struct CompileSpec {
  std::string std = "c++17";
  std::vector<std::string> options, preinclude, include_dirs, extra_includes;
  std::vector<std::pair<std::string, std::string>> define;   ///< texts with {P}
  std::vector<std::pair<std::string, std::string>> replace;  ///< header name in #include -> file
  HostHeaders host_headers = HostHeaders::none;
  bool default_device = false, minimal = false, ndebug = true;
  /// host_code = "cut": the compiler gets the source and its headers without host code (overlay/cut.hpp).
  /// host_code = "cut-unused": also without device code that nothing mentions. `keep` and `cut` are names of
  /// declarations.
  bool cut_host_code = false, cut_unused = false;
  std::vector<std::string> keep, cut;
};

/// [[global]]: a __device__ or __constant__ variable whose address the caller may ask for.
struct GlobalSpec {
  std::string name, symbol, doc;  ///< symbol: a C++ name with {P}
};

/// [export]: an integer constant of the source, which expressions may read once there is an image.
struct ExportSpec {
  std::string name, cpp;  ///< cpp: a constant expression with {P}
};

struct Limits {
  std::optional<std::int64_t> max_spill_bytes, performance_warnings, compile_seconds, compile_memory;
};

/// The index of each name in the values that expressions read.
struct SlotLayout {
  /// Numbers of names. They are laid out in this order from slot 0.
  int parameters = 0, derives = 0, arguments = 0, runtime = 0, run = 0, exports = 0;
  int derive_slot(int i) const noexcept { return parameters + i; }
  int argument_slot(int i) const noexcept { return parameters + derives + i; }
  int runtime_slot(int i) const noexcept { return parameters + derives + arguments + i; }
  int run_slot(int i) const noexcept { return runtime_slot(runtime) + i; }
  int export_slot(int i) const noexcept { return run_slot(run) + i; }
  int arch_slot() const noexcept { return export_slot(exports); }
  /// The arch's number, arch.smem_sm, arch.smem_block and arch.regs.
  static constexpr int kOfArch = 4;
  bool is_of_arch(int slot) const noexcept { return slot >= arch_slot() && slot < sms_slot(); }
  int sms_slot() const noexcept { return arch_slot() + kOfArch; }
  int smem_optin_slot() const noexcept { return sms_slot() + 1; }
  int l2_slot() const noexcept { return sms_slot() + 2; }
  int occupancy_slot() const noexcept { return sms_slot() + 3; }
  int total() const noexcept { return sms_slot() + 4; }
};

struct Manifest {
  std::string file;  ///< for messages: a path, or "<memory>"
  std::string name, summary, formula;
  std::string entry;     ///< name of its entry point, when [[kernel]] gives one
  std::string fallback;  ///< a generic template with the same arguments; empty: none
  bool internal = false;
  /// Candidates of `tune` may give results with other bits than the defaults.
  bool tune_changes_bits = false;
  EntryPoint kernel;
  std::optional<EntryPoint> reference;
  std::optional<base::Arch> arch_min;
  /// The instructions that the source needs from 9.0 on, beside `arch_min`: no image is made for a target
  /// that has fewer of them. Never ptx, which has the instructions of base.
  base::Features features = base::Features::exact;
  std::vector<base::Arch> arch_only;
  std::vector<std::pair<Dtype, double>> tolerance;
  CompileSpec compile;
  std::vector<ParameterSpec> parameters;
  /// In an order in which each derive needs only earlier ones.
  std::vector<std::pair<std::string, Expression>> derives;
  std::vector<Requirement> requirements;
  std::vector<ArgumentSpec> arguments;  ///< of a call
  std::vector<TensorMapSpec> tensor_maps;
  std::vector<PassedArgument> passed;     ///< the arguments of the kernel, in order
  std::vector<PassedConstant> constants;  ///< among them
  std::vector<RuntimeValueSpec> runtime;
  std::optional<WorkListSpec> work_list;
  std::optional<FamilySpec> family;  ///< of the main entry point
  /// Values that only `kiln run` has, for the work list that it makes. [work_list.run] declares them.
  std::vector<RuntimeValueSpec> run_values;
  Expression cost_read, cost_write, cost_flops;  ///< empty when the manifest has none
  Expression cost_dtype;  ///< the Dtype whose tensor cores make the flops; empty: none do
  Limits limits;
  std::vector<PrewarmRow> prewarm;
  SlotLayout slots;
  /// Slots of parameters and derives, in an order in which each default and each derive
  /// needs only earlier ones.
  std::vector<int> resolve_order;
  /// Slots of arguments and run-time values with a `value` expression, in an order in which each
  /// needs only earlier ones.
  std::vector<int> value_order;
  std::vector<GlobalSpec> globals;
  std::vector<BindSpec> binds;  ///< the operators
  std::vector<ExportSpec> exports;
  /// Further entry points of the same image. Each is a copy of this manifest with its own name, instantiate,
  /// arguments, run-time values, requirements and launch. These copies have no `entries`.
  std::vector<std::shared_ptr<const Manifest>> entries;
  /// [arch.*]: the manifest for one arch. These manifests have no `variants`.
  std::vector<std::pair<base::Arch, std::shared_ptr<const Manifest>>> variants;
};

/// Reads a manifest. Throws Error(manifest) "FILE:LINE: ..." for everything that docs/reference/manifest.md
/// forbids: TOML syntax, unknown table or key, wrong type, bad name, unknown name in an expression, cyclic
/// derive or default, an option that is not whitelisted, ...
Manifest parse_manifest(std::string_view toml, const std::string& file, WorkListKinds work_lists = {});

/// Limits that a caller's request must respect.
inline constexpr int kMaxParameters = 32, kMaxArguments = 64;

/// The manifest's variant for `arch`, else the one for the widest target of 10.0 or later whose code also
/// compiles for `arch` ([arch.sm_100f] for sm_103a), else the manifest itself. Parameters are equal; slots may differ.
const Manifest& variant_for(const Manifest& manifest, base::Arch arch) noexcept;
/// The entry point of that name, which may be the manifest's own; null when there is none.
const Manifest* entry_named(const Manifest& manifest, std::string_view name) noexcept;

int parameter_index(const Manifest& manifest, std::string_view name) noexcept;  ///< -1 when absent
int argument_index(const Manifest& manifest, std::string_view name) noexcept;   ///< -1 when absent
/// Slot of any name that expressions can read: "H", "rows", "arch", "dev.sms"; -1 when absent.
int slot_index(const Manifest& manifest, std::string_view name) noexcept;
std::vector<std::string> parameter_names(const Manifest& manifest);
/// Name and bytes of an argument of the kernel. The size is 0 when only the image knows it.
const std::string& passed_name(const Manifest& manifest, PassedArgument passed) noexcept;
std::uint32_t passed_size(const Manifest& manifest, PassedArgument passed) noexcept;

/// True when `passed` is every argument of a call in its order, and nothing else.
bool is_the_call(const std::vector<PassedArgument>& passed, const Manifest& manifest) noexcept;
/// The kernel's arguments as a text, "map_x, out, rows"; "" when they are the arguments of a call.
std::string passed_text(const Manifest& manifest);
/// The dtype of a tensor map as the manifest says it: "T", "bf16", "tf32".
std::string element_text(const TensorMapSpec& map);
/// A tensor map in one line: "x as T, dims [K, rows], strides [stride_x], box [64, 128], swizzle 128".
std::string summary(const TensorMapSpec& map, const Manifest& manifest);

/// The family in one line: "m picks M_BUCKET: 8, 16, 32; 32 also for all above".
std::string summary(const FamilySpec& family, const Manifest& manifest);

/// True when [template] arch allows `arch`.
bool supports(const Manifest& manifest, base::Arch arch) noexcept;

}  // namespace kiln::source
