// `attune completion`: what a shell needs to complete verbs, options and their values, made from
// the tables that the command line itself is read by.
#include <algorithm>

#include <attune/core/registry.hpp>
#include <attune/tuner/policy.hpp>

#include "output/text.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

/// What the values of an option are: words to choose from, or files.
struct Values {
  std::vector<std::string> words;
  bool files = false;
};

Values values_of(const OptionInfo& option, const Registry& registry) {
  if (option.value == "FILE" || option.value == "FOLDER") return {{}, true};
  if (option.name == "policy") return {policy_names(), false};
  if (option.name == "output-format") return {{"table", "json", "jsonl", "csv", "md"}, false};
  if (option.name == "objective") return {{"time", "energy"}, false};
  if (option.name == "color") return {{"auto", "always", "never"}, false};
  if (option.name == "backend") return {registry.backends(), false};
  if (option.name != "platform") return {};
  Values values{registry.platforms(), false};
  values.words.emplace_back("auto");
  return values;
}

std::vector<OptionInfo> options_of(const Verb& verb) {
  std::vector<OptionInfo> options = verb.options;
  options.insert(options.end(), global_options().begin(), global_options().end());
  return options;
}

/// The words that follow a verb in its usage lines, where those are fixed: "ls", "show".
std::vector<std::string> subcommands(const Verb& verb) {
  std::vector<std::string> words;
  for (const std::string_view usage : verb.usage) {
    std::string_view rest = usage.substr(std::min(verb.name.size() + 1, usage.size()));
    const std::string word(rest.substr(0, rest.find(' ')));
    const bool is_fixed = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '-';
    });
    if (is_fixed && word[0] != '-' && std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(word);
  }
  return words;
}

bool takes_an_op(const Verb& verb) {
  return std::any_of(verb.usage.begin(), verb.usage.end(), [](std::string_view usage) {
    return usage.find("OP") != std::string_view::npos;
  });
}

/// What may follow a verb besides options.
std::vector<std::string> words_of(const Verb& verb, const Registry& registry) {
  std::vector<std::string> words = subcommands(verb);
  if (takes_an_op(verb)) {
    for (const OpInfo* op : registry.ops()) words.emplace_back(op->name);
  }
  if (verb.name == "completion") words = {"bash", "zsh"};
  if (verb.name == "man") {
    for (const Verb& other : verbs()) words.emplace_back(other.name);
  }
  return words;
}

std::string verb_names() {
  std::vector<std::string> names{"help"};
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  return join(names, " ");
}

std::string option_words(const Verb& verb) {
  std::vector<std::string> names;
  for (const OptionInfo& option : options_of(verb)) {
    names.push_back("--" + std::string(option.name));
    if (option.letter != '\0') names.push_back(std::string("-") + option.letter);
  }
  return join(names, " ");
}

/// "    --policy) ... ;;" for each option that takes a value, of whichever verb.
std::string bash_value_cases(const Registry& registry) {
  std::vector<OptionInfo> all(global_options().begin(), global_options().end());
  for (const Verb& verb : verbs()) all.insert(all.end(), verb.options.begin(), verb.options.end());
  std::string cases;
  std::vector<std::string_view> seen;
  for (const OptionInfo& option : all) {
    if (option.value.empty() || std::find(seen.begin(), seen.end(), option.name) != seen.end())
      continue;
    seen.push_back(option.name);
    const Values values = values_of(option, registry);
    std::string names = "--" + std::string(option.name);
    if (option.letter != '\0') names += std::string("|-") + option.letter;
    cases += str("    ", names, ") ",
                 values.files ? std::string("COMPREPLY=($(compgen -f -- \"$word\"))")
                              : str("COMPREPLY=($(compgen -W '", join(values.words, " "),
                                    "' -- \"$word\"))"),
                 "; return ;;\n");
  }
  return cases;
}

std::string bash_script(const Registry& registry) {
  std::string script =
      str("# bash completion for attune: eval \"$(attune completion bash)\"\n"
          "_attune() {\n"
          "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= i\n"
          "  COMPREPLY=()\n"
          "  case $before in\n",
          bash_value_cases(registry),
          "  esac\n"
          "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
          "    case ${COMP_WORDS[i]} in\n");
  for (const Verb& verb : verbs())
    script += str("      ", verb.name, ") verb=", verb.name, "; break ;;\n");
  script += str("      help) COMPREPLY=($(compgen -W '", verb_names(),
                "' -- \"$word\")); return ;;\n"
                "    esac\n"
                "  done\n"
                "  case $verb in\n");
  for (const Verb& verb : verbs()) {
    script += str("    ", verb.name, ") COMPREPLY=($(compgen -W '", option_words(verb), " ",
                  join(words_of(verb, registry), " "), "' -- \"$word\")) ;;\n");
  }
  return script + str("    *) COMPREPLY=($(compgen -W '", verb_names(),
                      " --help --version' -- \"$word\")) ;;\n"
                      "  esac\n"
                      "}\n"
                      "complete -o default -F _attune attune\n");
}

/// Text between zsh's single quotes, within a [description].
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_option(const OptionInfo& option, const Registry& registry) {
  std::string action;
  if (!option.value.empty()) {
    const Values values = values_of(option, registry);
    action =
        str(":", option.value, ":", values.files ? "_files" : "(" + join(values.words, " ") + ")");
  }
  const std::string text = str("[", zsh_text(option.help), "]", action);
  const std::string star = option.repeatable ? "*" : "";
  std::string line = str("        '", star, "--", option.name, text, "' \\\n");
  if (option.letter != '\0') line += str("        '", star, "-", option.letter, text, "' \\\n");
  return line;
}

std::string zsh_script(const Registry& registry) {
  std::string script =
      "#compdef attune\n"
      "# zsh completion for attune: attune completion zsh > a folder of $fpath, as _attune\n"
      "_attune() {\n"
      "  local -a verbs\n"
      "  verbs=(\n";
  for (const Verb& verb : verbs())
    script += str("    '", verb.name, ":", zsh_text(verb.summary), "'\n");
  script +=
      "    'help:what a verb does'\n"
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  local verb=$words[2]\n"
      "  words=(\"${(@)words[2,-1]}\")\n"
      "  ((CURRENT--))\n"
      "  case $verb in\n"
      "    help) _describe verb verbs ;;\n";
  for (const Verb& verb : verbs()) {
    script += str("    ", verb.name, ")\n      _arguments \\\n");
    for (const OptionInfo& option : options_of(verb)) script += zsh_option(option, registry);
    const std::vector<std::string> words = words_of(verb, registry);
    script += words.empty() ? std::string("        '*:file:_files'")
                            : str("        '*:argument:(", join(words, " "), ")'");
    script += " ;;\n";
  }
  return script +
         "  esac\n"
         "}\n"
         "_attune \"$@\"\n";
}

ExitCode run(const Invocation& call) {
  const std::vector<std::string> shells{"bash", "zsh"};
  const std::string shell = call.words.size() == 1 ? call.words[0] : "";
  if (std::find(shells.begin(), shells.end(), shell) == shells.end()) {
    throw UsageError(call.words.empty() ? "expected a shell: bash or zsh"
                                        : str("'", join(call.words, " "), "': expected bash or zsh",
                                              did_you_mean(call.words[0], shells)));
  }
  Registry registry;
  if (call.register_ops != nullptr) call.register_ops(registry);
  call.out.write(shell == "bash" ? bash_script(registry) : zsh_script(registry));
  return ExitCode::kOk;
}

}  // namespace

Verb completion_verb() {
  return {.name = "completion",
          .summary = "a script that lets bash or zsh complete verbs, options and ops",
          .usage = {"completion bash|zsh"},
          .examples = {"completion bash > ~/.local/share/bash-completion/completions/attune",
                       "completion zsh > ~/.zfunc/_attune"},
          .details = "It knows the ops of this build, not those of plugins.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
