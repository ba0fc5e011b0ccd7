// `attune env`: every setting, its value here, and where that comes from.
#include <cstdlib>

#include <attune/core/environment.hpp>

#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

/// A setting's value and origin. No value: it is not set and there is no default.
struct Value {
  std::optional<std::string> text;
  std::string origin;
};

constexpr std::string_view kDefault = "default";

/// The first of: the option, the variable, the default.
Value setting(const Invocation& call, std::string_view option, std::string_view variable,
              std::optional<std::string> otherwise) {
  if (!option.empty()) {
    if (const auto given = call.options.text(option)) return {given, str("--", option)};
  }
  if (const auto given = read_environment(variable)) return {given, std::string(variable)};
  return {std::move(otherwise), std::string(kDefault)};
}

/// XDG_DATA_HOME or HOME, whichever the default place of the database is made of.
std::string home_variable() {
  const char* data = secure_getenv("XDG_DATA_HOME");
  return data != nullptr && *data == '/' ? "XDG_DATA_HOME" : "HOME";
}

Value database(const CommandContext& command, const Invocation& call) {
  const std::string& path = command.chain().store().settings().user_path;
  Value value = setting(call, "db", "ATTUNE_DB", path);
  if (value.origin == kDefault) value.origin = str(kDefault, ", in ", home_variable());
  value.text = path.empty() ? std::nullopt : std::optional(path);
  return value;
}

std::optional<std::string> listed(const std::vector<std::string>& parts) {
  return parts.empty() ? std::nullopt : std::optional(join(parts, ":"));
}

/// What is in force for one of attune's variables.
Value in_force(const CommandContext& command, const Invocation& call, std::string_view variable) {
  if (variable == "ATTUNE_POLICY") return setting(call, "policy", variable, command.policy_name());
  if (variable == "ATTUNE_DB") return database(command, call);
  if (variable == "ATTUNE_LOG") return setting(call, "", variable, "info");
  if (variable == "ATTUNE_LOG_CMD") return setting(call, "", variable, "0");
  if (variable == "ATTUNE_PLUGINS" && call.options.flag("plugin")) {
    return {listed(call.options.texts("plugin")), "--plugin"};
  }
  return setting(call, "", variable, std::nullopt);
}

Cell cell(const std::optional<std::string>& text) { return text ? Cell(*text) : Cell(); }

void add_budgets(const CommandContext& command, const Invocation& call, Table& table) {
  const AutotunePolicy& policy = command.chain().policy();
  const auto given = call.options.duration("budget");
  const auto add = [&](std::string_view name, std::chrono::milliseconds value,
                       std::string_view meaning) {
    table.add({name, str((given ? *given : value).count(), "ms"), given ? "--budget" : kDefault,
               meaning});
  };
  add("problem budget", policy.problem_budget, "time for tuning one problem inside a call");
  add("process budget", policy.process_budget, "time for all such tunings of a process");
}

/// What others set and attune heeds.
void add_surroundings(const CommandContext& command, Table& table) {
  const std::vector<std::string>& shipped = command.chain().store().settings().shipped_paths;
  table.add({"shipped databases", cell(listed(shipped)), "the installation",
             "read after the user's and the site's"});
  table.add({"built for", join(command.registry().builds(), "; "), "the build",
             "what kernels were compiled for"});
  table.add({"cores", str(command.registry().devices().front()->info().cores),
             "affinity and cgroup", "most threads that a kernel runs on"});
  for (const auto& [name, meaning] :
       {std::pair("CUDA_VISIBLE_DEVICES", "the GPUs that there are, by CUDA"),
        std::pair("NO_COLOR", "no colours on a terminal, as --color never")}) {
    const char* value = secure_getenv(name);
    table.add({name, value != nullptr ? Cell(std::string(value)) : Cell(),
               value != nullptr ? "environment" : "not set", meaning});
  }
}

/// Variables that look like attune's and are not.
std::size_t add_unknown(Table& table) {
  const std::vector<UnknownVariable> unknown = unknown_environment_variables();
  for (const UnknownVariable& variable : unknown) {
    table.add({Cell(variable.name, Tone::kBad), variable.value, "environment",
               str("not one of attune's variables", variable.suggestion)});
  }
  return unknown.size();
}

ExitCode run(const Invocation& call) {
  if (!call.words.empty()) throw UsageError(str("'", call.words[0], "': expected no arguments"));
  const CommandContext command(call, {});
  Table table({"setting", "value", "origin", "meaning"});
  for (const EnvironmentVariable& variable : environment_variables()) {
    const Value value = in_force(command, call, variable.name);
    table.add(
        {variable.name, cell(value.text), value.text ? value.origin : "not set", variable.meaning});
  }
  add_budgets(command, call, table);
  add_surroundings(command, table);
  const std::size_t unknown = add_unknown(table);
  call.print(std::move(table));
  return unknown == 0 ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace

Verb env_verb() {
  return {.name = "env",
          .summary = "every setting, its value here, and where that comes from",
          .usage = {"env"},
          .examples = {"env", "env --policy db --db my.db", "env -o json"},
          .details =
              "An option outranks the environment variable, and that the default. Exit status 1 "
              "when an ATTUNE_ variable is set that is not one of attune's: a typo, most likely.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
