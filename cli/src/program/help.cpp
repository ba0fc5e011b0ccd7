#include "program/help.hpp"

#include <algorithm>

#include <attune/core/version.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

constexpr std::size_t kWidth = 80;

/// "  name      text", the text wrapped beside the names.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& [name, text] : rows) width = std::max(width, display_width(name));
  std::string out;
  for (const auto& [name, text] : rows) {
    std::string left = name;
    for (const std::string& line : wrap(text, kWidth - width - 4)) {
      out += "  " + pad_right(left, width) + "  " + line + '\n';
      left.clear();
    }
  }
  return out;
}

std::string option_lines(std::span<const OptionInfo> options) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OptionInfo& option : options) {
    std::string name = option_names(option);
    if (!option.value.empty()) name += ' ' + std::string(option.value);
    rows.emplace_back(std::move(name), option.help);
  }
  return two_columns(rows);
}

std::string command_lines(const std::vector<std::string_view>& commands) {
  std::string out;
  for (const std::string_view command : commands) out += str("  attune ", command, '\n');
  return out;
}

constexpr std::string_view kSpecHelp =
    "A SPEC names the fields of problems: B=4 T=512,[1024:8192:*2] H=16 D=128 dtype=bf16. Commas "
    "list values, [first:last:*n] and [first:last:+n] are ranges, and lists multiply. pass=bwd "
    "means the op's backward pass. @FILE and - (standard input) read one SPEC a line, as text or "
    "as JSON ({\"op\": \"...\", \"T\": [512, 1024]}). 'attune ops OP' lists an op's fields.";

constexpr std::pair<std::string_view, std::string_view> kExitStatuses[] = {
    {"0", "done"},
    {"1", "the answer is no: a check failed, a problem is not tuned"},
    {"2", "the command line is wrong"},
    {"3", "the device, backend or plugin is not there, or cannot be used"},
    {"4", "a database cannot be used"},
    {"5", "it was tried and failed"},
    {"130", "interrupted; what was finished is kept"}};

bool takes_specs(const Verb& verb) {
  return std::any_of(verb.usage.begin(), verb.usage.end(), [](std::string_view usage) {
    return usage.find("SPEC") != std::string_view::npos;
  });
}

std::string paragraphs(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end == 0) out += '\n';  // an empty line stays one
    for (const std::string& line : wrap(text.substr(0, end), kWidth)) out += line + '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string program_help(bool has_ops) {
  const std::vector<std::string_view> first_steps =
      has_ops
          ? std::vector<
                std::
                    string_view>{"demo",
                                 "tune gated_linear_attention T=[512:4096:*2] H=16 D=128 dtype=bf16",
                                 "explain gated_linear_attention T=1000 H=16 D=128 dtype=bf16"}
          : std::vector<std::string_view>{"ops --plugin libmine.so",
                                          "tune OP SPEC --plugin libmine.so"};
  std::string out = str("attune ", kVersion, ": ",
                        has_ops ? "linear attention that tunes itself"
                                : "kernels that tune themselves; plugins bring the ops",
                        "\n\nusage: attune VERB [ARGUMENTS] [OPTIONS]\n\nfirst steps:\n",
                        command_lines(first_steps), "\nverbs:\n");
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Verb& verb : verbs()) rows.emplace_back(verb.name, verb.summary);
  rows.emplace_back("help VERB", "what a verb does, with examples and its options");
  out += two_columns(rows);
  out += "\noptions of every verb:\n" + option_lines(global_options());
  rows.clear();
  for (const auto& [status, meaning] : kExitStatuses) rows.emplace_back(status, meaning);
  return out + "\nexit status:\n" + two_columns(rows);
}

std::span<const std::pair<std::string_view, std::string_view>> exit_statuses() {
  return kExitStatuses;
}

std::string verb_details(const Verb& verb) {
  std::string details(verb.details);
  if (!takes_specs(verb)) return details;
  if (!details.empty()) details += "\n\n";
  return details += kSpecHelp;
}

std::string verb_help(const Verb& verb) {
  std::string out = paragraphs(str("attune ", verb.name, ": ", verb.summary)) + "\nexamples:\n" +
                    command_lines(verb.examples) + "\nusage:\n" + command_lines(verb.usage) + '\n';
  const std::string details = verb_details(verb);
  if (!details.empty()) out += paragraphs(details) + '\n';
  if (!verb.options.empty()) out += "options:\n" + option_lines(verb.options) + '\n';
  return out + "options of every verb:\n" + option_lines(global_options());
}

}  // namespace attune::cli
