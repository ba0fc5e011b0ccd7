#include "program/options.hpp"

#include <algorithm>

#include <boost/program_options.hpp>

#include <attune/core/params.hpp>

#include "output/text.hpp"
#include "program/duration.hpp"
#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

namespace po = boost::program_options;

constexpr OptionInfo kGlobal[] = {
    {"backend", '\0', "NAME",
     "what to run on: cpu, gpu or a plugin's; default: the best there is for the op", false},
    {"device", '\0', "N", "which device of the backend; default 0", false},
    {"platform", '\0', "NAME", "only this platform's kernels compete; default auto: all do", false},
    {"config", '\0', "K=V,...", "override: this config (kernel=NAME, may come first) and no other",
     false},
    {"threads", '\0', "N",
     "threads of the host that a call takes, at most; default ATTUNE_THREADS, else all its cores",
     false},
    {"workspace-limit", '\0', "BYTES",
     "scratch memory of what is chosen, at most; what is stored and needs more is passed over",
     false},
    {"max-workspace", '\0', "BYTES",
     "constraint: tuned, stored and found under a bound of the scratch memory", false},
    {"max-error", '\0', "E",
     "constraint: likewise, of the worst relative RMS error against the reference", false},
    {"objective", '\0', "NAME",
     "what tuning minimises, and under what rows are stored and found: time (default) or energy "
     "(of an NVIDIA GPU, by NVML)",
     false},
    {"policy", '\0', "NAME",
     "what an unknown problem gets: tune, db, heuristic, strict, or "
     "strict-fresh, to which stale rows are unknown",
     false},
    {"db", '\0', "FILE", "the user's config database; default ATTUNE_DB, else in XDG_DATA_HOME",
     false},
    {"budget", '\0', "TIME", "time for tuning in this command: 500ms, 30s, 10m", false},
    {"plugin", '\0', "FILE", "a shared object with more ops, kernels or devices; repeatable", true},
    {"seed", '\0', "N", "of random inputs; default 1", false},
    {"output-format", 'o', "FORMAT", "table (default), json, jsonl, csv or md", false},
    {"color", '\0', "WHEN", "auto (default), always or never; NO_COLOR is heeded", false},
    {"quiet", 'q', "", "no progress and no notes on standard error", false},
    {"verbose", 'v', "", "more detail, and debug lines on standard error", false},
    {"help", 'h', "", "what the verb does, with examples", false},
    {"version", '\0', "", "the version", false},
};

/// Prefixes are not guessed: `--dev 1` is an error, whatever option it may be the beginning of
/// tomorrow.
constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;

po::options_description describe(std::span<const OptionInfo> known) {
  po::options_description description;
  for (const OptionInfo& option : known) {
    std::string name(option.name);
    if (option.letter != '\0') name += std::string(",") + option.letter;
    if (option.value.empty()) {
      description.add_options()(name.c_str(), po::bool_switch());
    } else if (option.repeatable) {
      description.add_options()(name.c_str(), po::value<std::vector<std::string>>());
    } else {
      description.add_options()(name.c_str(), po::value<std::string>());
    }
  }
  return description;
}

std::vector<std::string> long_names(std::span<const OptionInfo> known) {
  std::vector<std::string> names;
  for (const OptionInfo& option : known) names.push_back("--" + std::string(option.name));
  return names;
}

/// What went wrong, in our words: Boost's name neither the nearest option nor what it takes, and
/// what() of an error that names an option never returns where the value holds a placeholder of
/// Boost's messages, such as %canonical_option%.
[[noreturn]] void refuse(const po::error& error, std::span<const OptionInfo> known) {
  if (const auto* unknown = dynamic_cast<const po::unknown_option*>(&error)) {
    const std::string given = unknown->get_option_name();
    throw UsageError(str("no option '", given, "'", did_you_mean(given, long_names(known))));
  }
  const auto* named = dynamic_cast<const po::error_with_option_name*>(&error);
  if (named == nullptr) throw UsageError(error.what());
  const std::string name = named->get_option_name();
  if (dynamic_cast<const po::multiple_occurrences*>(&error) != nullptr) {
    throw UsageError(str(name, " is given twice"));
  }
  const auto* syntax = dynamic_cast<const po::invalid_syntax*>(&error);
  using Kind = po::invalid_syntax::kind_t;
  if (syntax != nullptr) {
    if (syntax->kind() == Kind::missing_parameter ||
        syntax->kind() == Kind::empty_adjacent_parameter) {
      throw UsageError(str(name, ": expected a value"));
    }
    if (syntax->kind() == Kind::extra_parameter) throw UsageError(str(name, " takes no value"));
  }
  throw UsageError(str("cannot read option '", name, "'"));
}

}  // namespace

std::span<const OptionInfo> global_options() { return kGlobal; }

std::string option_names(const OptionInfo& option) {
  const std::string name = "--" + std::string(option.name);
  return option.letter == '\0' ? name : str("-", option.letter, ", ", name);
}

Options Options::parse(const std::vector<std::string>& arguments, std::span<const OptionInfo> known,
                       std::vector<std::string>& words) {
  Options options;
  try {
    const po::options_description description = describe(known);
    const auto parsed = po::command_line_parser(arguments).options(description).style(kStyle).run();
    po::variables_map stored;
    po::store(parsed, stored);
    for (const auto& [name, value] : stored) {
      if (const auto* flag = boost::any_cast<bool>(&value.value())) {
        if (*flag) options.values_[name];
      } else if (const auto* text = boost::any_cast<std::string>(&value.value())) {
        options.values_[name] = {*text};
      } else {
        options.values_[name] = value.as<std::vector<std::string>>();
      }
    }
    for (std::string& word : po::collect_unrecognized(parsed.options, po::include_positional)) {
      words.push_back(std::move(word));
    }
  } catch (const po::error& error) {
    refuse(error, known);
  }
  return options;
}

std::optional<std::string> Options::text(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second.back());
}

std::vector<std::string> Options::texts(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::optional<std::int64_t> Options::integer(std::string_view name, std::int64_t least,
                                             std::int64_t most) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  std::int64_t value = 0;
  if (!parse_integer(*given, value) || value < least || value > most) {
    throw UsageError(
        str("--", name, " '", *given, "': expected a whole number from ", least, " to ", most));
  }
  return value;
}

std::optional<double> Options::real(std::string_view name) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  const std::optional<double> value = parse_real(*given);
  if (!value) throw UsageError(str("--", name, " '", *given, "': expected a finite number"));
  return value;
}

std::optional<std::chrono::milliseconds> Options::duration(std::string_view name) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  const auto value = parse_duration(*given);
  if (!value)
    throw UsageError(str("--", name, " '", *given, "': expected a time such as 500ms, 30s or 10m"));
  return value;
}

std::optional<std::string> Options::one_of(std::string_view name,
                                           const std::vector<std::string>& legal) const {
  std::optional<std::string> given = text(name);
  if (!given || std::find(legal.begin(), legal.end(), *given) != legal.end()) return given;
  throw UsageError(str("--", name, " '", *given, "': expected ", join(legal, ", "),
                       did_you_mean(*given, legal)));
}

}  // namespace attune::cli
