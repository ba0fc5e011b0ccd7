#include "program/program.hpp"

#include <unistd.h>

#include <new>

#include <attune/core/log.hpp>
#include <attune/core/params.hpp>
#include <attune/core/registry.hpp>
#include <attune/core/version.hpp>

#include "output/text.hpp"
#include "program/commit.hpp"
#include "program/help.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

std::vector<std::string> verb_names() {
  std::vector<std::string> names{"help"};
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  return names;
}

const Verb& verb_named(std::string_view name) {
  if (const Verb* verb = find_verb(name)) return *verb;
  throw UsageError(str("no verb '", name, "'", did_you_mean(name, verb_names())));
}

/// The global option that an argument names, by "--name", "--name=value", "-x" or "-xvalue".
const OptionInfo* global_option(std::string_view argument) {
  for (const OptionInfo& option : global_options()) {
    const bool is_long =
        argument.starts_with("--") && argument.substr(2, argument.find('=') - 2) == option.name;
    const bool is_short =
        option.letter != '\0' && argument[0] == '-' && argument[1] == option.letter;
    if (is_long || is_short) return &option;
  }
  return nullptr;
}

/// The index of the verb: the first argument that is neither a global option nor the value of one.
std::size_t find_verb_index(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') return i;
    const OptionInfo* option = global_option(argument);
    if (option == nullptr) {
      std::vector<std::string> names;
      for (const OptionInfo& known : global_options())
        names.push_back("--" + std::string(known.name));
      throw UsageError(
          str("no option '", argument, "' before a verb", did_you_mean(argument, names)));
    }
    const bool value_follows =
        argument.size() == 2 || (argument[1] == '-' && argument.find('=') == std::string::npos);
    if (!option->value.empty() && value_follows) ++i;
  }
  return arguments.size();
}

Invocation make_invocation(const Verb& verb, const std::vector<std::string>& arguments,
                           RegisterOps register_ops, Output& out) {
  std::vector<OptionInfo> known(global_options().begin(), global_options().end());
  known.insert(known.end(), verb.options.begin(), verb.options.end());
  Invocation call{.verb = verb,
                  .register_ops = register_ops,
                  .options = {},
                  .words = {},
                  .out = out,
                  .screen = {}};
  call.options = Options::parse(arguments, known, call.words);
  const std::string color =
      call.options.one_of("color", {"auto", "always", "never"}).value_or("auto");
  call.screen = inspect_terminal(STDOUT_FILENO, color == "always"  ? ColorMode::kAlways
                                                : color == "never" ? ColorMode::kNever
                                                                   : ColorMode::kAuto);
  call.format = parse_format(call.options.text("output-format").value_or("table"));
  call.quiet = call.options.flag("quiet");
  call.verbose = call.options.flag("verbose");
  if (call.verbose) set_log_level(LogLevel::kDebug);
  if (call.quiet) set_log_level(LogLevel::kWarning);
  return call;
}

/// The version, and what was built for each backend, a line each.
std::string version_text(RegisterOps register_ops) {
  Registry registry;
  if (register_ops != nullptr) register_ops(registry);
  std::string text = str("attune ", kVersion);
  if (!kCommit.empty()) text += str(" (commit ", kCommit, ')');
  for (const std::string& build : registry.builds()) text += "\n" + build;
  return text + '\n';
}

/// No verb: only --help and --version can be meant.
ExitCode run_without_verb(const std::vector<std::string>& arguments, RegisterOps register_ops,
                          Output& out) {
  std::vector<std::string> words;
  const Options options = Options::parse(arguments, global_options(), words);
  if (options.flag("version")) {
    out.write(version_text(register_ops));
  } else if (options.flag("help")) {
    out.write(program_help(register_ops != nullptr));
  } else if (arguments.empty()) {
    write_error(program_help(register_ops != nullptr));
    return ExitCode::kUsage;
  } else {
    throw UsageError("expected a verb: " + join(verb_names(), ", "));
  }
  return ExitCode::kOk;
}

ExitCode run_help(const std::vector<std::string>& words, RegisterOps register_ops, Output& out) {
  if (words.size() > 1) throw UsageError("help: expected one verb");
  const bool of_program = words.empty() || words[0] == "help";
  out.write(of_program ? program_help(register_ops != nullptr) : verb_help(verb_named(words[0])));
  return ExitCode::kOk;
}

/// Runs what the arguments say; `verb` is set as soon as it is known, for messages.
ExitCode dispatch(std::vector<std::string> arguments, RegisterOps register_ops, Output& out,
                  std::string& verb_name) {
  const std::size_t at = find_verb_index(arguments);
  if (at == arguments.size()) return run_without_verb(arguments, register_ops, out);
  const std::string name = arguments[at];
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  if (name == "help") {
    std::vector<std::string> words;
    static_cast<void>(Options::parse(arguments, global_options(), words));
    return run_help(words, register_ops, out);
  }
  const Verb& verb = verb_named(name);
  verb_name = name;
  const Invocation call = make_invocation(verb, arguments, register_ops, out);
  if (call.options.flag("help") || call.options.flag("version")) {
    out.write(call.options.flag("help") ? verb_help(verb) : version_text(register_ops));
    return ExitCode::kOk;
  }
  return verb.run(call);
}

ExitCode fail(ExitCode code, std::string_view verb, std::string_view message) {
  std::string text = "attune: ";
  if (!verb.empty()) text += str(verb, ": ");
  // A message may list kernels, one a line; other control characters came from the command line or
  // a file.
  for (std::string_view rest = message; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    text += printable(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!rest.empty()) text += '\n';
  }
  if (code == ExitCode::kUsage) {
    text += verb.empty() ? "; see 'attune --help'" : str("; see 'attune ", verb, " --help'");
  }
  write_error(text + '\n');
  return code;
}

}  // namespace

ExitCode run_program(const std::vector<std::string>& arguments, RegisterOps register_ops) {
  Output out(STDOUT_FILENO);
  std::string verb;
  try {
    const ExitCode code = dispatch(arguments, register_ops, out, verb);
    out.flush();
    return code;
  } catch (const ClosedPipe&) {
    return ExitCode::kOk;
  } catch (const UsageError& error) {
    return fail(ExitCode::kUsage, verb, error.what());
  } catch (const InvalidArgument& error) {
    return fail(ExitCode::kUsage, verb, error.what());
  } catch (const Unavailable& error) {
    return fail(ExitCode::kUnavailable, verb, error.what());
  } catch (const CacheError& error) {
    return fail(ExitCode::kDatabase, verb, error.what());
  } catch (const NotTuned& error) {
    return fail(ExitCode::kNo, verb, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kFailure, verb, "out of memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::kFailure, verb, error.what());
  }
}

}  // namespace attune::cli
