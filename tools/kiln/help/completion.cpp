// kiln completion: the scripts for bash, zsh and fish.
#include "tools/kiln/help/completion.hpp"

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/help/complete.hpp"

namespace kiln::cli {
namespace {

// Each script asks `kiln __complete`. No space is added after a candidate that ends with =.
constexpr const char* kBash = R"bash(# bash completion for kiln, made by 'kiln completion bash'
_kiln() {
  # COMP_WORDS is split at = and :, the words of the line are not.
  local line=${COMP_LINE:0:COMP_POINT} words typed reply offers
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  typed=${words[-1]}
  mapfile -t reply < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  offers=${reply[0]:-:}
  reply=("${reply[@]:1}")
  COMPREPLY=("${reply[@]%%$'\t'*}")
  [[ $offers == :files ]] && compopt -o filenames && COMPREPLY+=($(compgen -f -- "$typed"))
  [[ $offers == :dirs ]] && compopt -o filenames && COMPREPLY+=($(compgen -d -- "$typed"))
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  # What readline replaces begins behind the last = of the word.
  [[ $typed == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*=}"}"}")
  return 0
}
complete -F _kiln kiln
)bash";

constexpr const char* kZsh = R"zsh(#compdef kiln
# zsh completion for kiln, made by 'kiln completion zsh'
_kiln() {
  local -a reply plain open
  local offers line word
  reply=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  offers=${reply[1]}
  for line in "${(@)reply[2,-1]}"; do
    word=${line%%$'\t'*}
    # _describe takes what stands behind a colon for the text.
    if [[ $word == *= ]]; then open+=("${word//:/\\:}:${line#*$'\t'}")
    elif [[ -n $word ]]; then plain+=("${word//:/\\:}:${line#*$'\t'}"); fi
  done
  (( $#open )) && _describe -t parameters parameter open -S ''
  (( $#plain )) && _describe -t values value plain
  [[ $offers == :files ]] && _files
  [[ $offers == :dirs ]] && _files -/
  return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _kiln "$@"; else compdef _kiln kiln; fi
)zsh";

constexpr const char* kFish = R"fish(# fish completion for kiln, made by 'kiln completion fish'
function __kiln_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l reply ($words[1] __complete $words[2..-1] 2>/dev/null)
    switch $reply[1]
        case :files
            __fish_complete_path (commandline -ct)
        case :dirs
            __fish_complete_directories (commandline -ct)
    end
    for line in $reply[2..-1]
        echo $line
    end
end
complete -c kiln -f -a '(__kiln_complete)'
)fish";

int completion(const Context& context, const std::string& shell) {
  const char* script = completion_script(shell);
  if (context.json)
    print_json({{"schema", context.schema()}, {"shell", shell}, {"script", script}});
  else
    print(script);
  return kDone;
}

}  // namespace

const char* completion_script(const std::string& shell) noexcept {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : shell == "fish" ? kFish : nullptr;
}

void add_completion(Command app, Context& context) {
  const auto shell = std::make_shared<std::string>();
  const Command sub = context.add_command(app, "completion", "Print a shell's completion script",
                                          [&context, shell] { return completion(context, *shell); });
  sub.option("shell", *shell, "The shell: bash, zsh or fish")
      .type_name("bash|zsh|fish")
      .one_of({"bash", "zsh", "fish"})
      .required();
  sub.footer(
      "bash: kiln completion bash > ~/.local/share/bash-completion/completions/kiln\n"
      "zsh:  kiln completion zsh > \"${fpath[1]}/_kiln\"\n"
      "fish: kiln completion fish > ~/.config/fish/completions/kiln.fish\n"
      "An installation of kiln puts these files where the shells find them.");
}

}  // namespace kiln::cli
