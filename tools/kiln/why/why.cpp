// kiln why: which step of the lookup path would serve a specialisation now, and why no earlier step does.
#include "tools/kiln/why/why.hpp"

#include <ctime>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/plan/tuned_device.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/why/answer.hpp"
#include "tools/kiln/why/text.hpp"

namespace kiln::cli {
namespace {

struct WhyArguments {
  std::string name, device;
  std::vector<std::string> values;
  std::size_t all = 1;
};

int why(Context& context, const WhyArguments& arguments) {
  check_toolchain(context.toolchain);
  const base::Arch arch = context.target_arch();
  std::string device;
  if (has_tune(context.service().catalog().open(arguments.name)->manifest))
    device = context.target_device(arguments.device, arch);
  const WhyAnswer answer = explain(
      context.service(), {arguments.name, arguments.values, arch, device, context.toolchain, arguments.all});
  if (context.json) {
    Json out{{"schema", context.schema()}};
    out.update(json_of(answer));
    if (const std::string damage = damage_of(answer); !damage.empty())
      out["error"] = {{"code", "damaged"}, {"message", damage}};
    print_json(out);
  } else {
    print_answer(answer);
  }
  if (const std::string damage = damage_of(answer); !damage.empty()) {
    std::fflush(stdout);
    std::fprintf(stderr, "kiln: error: %s\n", damage.c_str());
    return kDamaged;
  }
  return is_hit(answer) ? kDone : kPartly;
}

}  // namespace

void add_why(Command app, Context& context) {
  const auto arguments = std::make_shared<WhyArguments>();
  const Command sub = context.add_command(app, "why", "Explain why a specialisation would be a hit or a miss",
                                          [&context, arguments] { return why(context, *arguments); });
  sub.option("template", arguments->name, "Name of the template").type_name("NAME").required();
  sub.option("params", arguments->values, "Parameters of the template; others take their defaults")
      .type_name("P=V");
  add_device_option(sub, arguments->device);
  sub.option("--toolchain", context.toolchain,
             "Answer as if KILN_TOOLCHAIN were HEX (this toolchain's records are served, too), and compare\n"
             "with entries of that toolchain; HEX is the first digits of a key's second half")
      .not_empty()
      .type_name("HEX");
  sub.option("--all", arguments->all, "Compare with the N nearest entries, not only the nearest")
      .type_name("N")
      .range(1, 1000);
  sub.footer(
      "Answers for a process that starts now. Nothing is compiled. Kernels that are only in the memory of a\n"
      "running process are not seen.\n"
      "Exit status: 0 for a hit, 3 for a miss, 4 when damage was found on the way.\n"
      "Example: kiln why rms_norm T=bf16 H=4096 --arch sm_90a");
}

}  // namespace kiln::cli
