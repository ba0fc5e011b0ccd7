// `attune man`: manual pages in man(7) macros, made from the tables that help is made from.
#include <algorithm>
#include <filesystem>

#include <attune/core/params.hpp>
#include <attune/core/version.hpp>

#include "output/outputs.hpp"
#include "output/text.hpp"
#include "program/help.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

/// Text as roff takes it literally: a backslash, a hyphen that stays one, and a line that may begin
/// with a control character.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if (out.empty() && (c == '.' || c == '\'')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string heading(std::string_view title) { return str(".SH ", title, "\n"); }

std::string paragraphs(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) out += str(".PP\n", roff(text.substr(0, end)), "\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Lines as they are, in a fixed-width font.
std::string commands(const std::vector<std::string_view>& lines) {
  std::string out = ".nf\n";
  for (const std::string_view line : lines) out += str("\\fBattune\\fR ", roff(line), "\n");
  return out + ".fi\n";
}

std::string term(std::string_view name, std::string_view value, std::string_view text) {
  std::string line = str(".TP\n\\fB", roff(name), "\\fR");
  if (!value.empty()) line += str(" \\fI", roff(value), "\\fR");
  return line + str("\n", roff(text), "\n");
}

std::string options(std::span<const OptionInfo> all) {
  std::string out;
  for (const OptionInfo& option : all) out += term(option_names(option), option.value, option.help);
  return out;
}

std::string title(const std::string& name, std::string_view summary) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return str(".TH ", roff(upper), " 1 \"\" \"attune ", kVersion, "\" \"User Commands\"\n",
             heading("NAME"), roff(name), " \\- ", roff(summary), "\n");
}

std::string verb_page(const Verb& verb) {
  std::string out =
      title(str("attune-", verb.name), verb.summary) + heading("SYNOPSIS") + commands(verb.usage);
  const std::string about = verb_details(verb);
  if (!about.empty()) out += heading("DESCRIPTION") + paragraphs(about);
  if (!verb.options.empty()) out += heading("OPTIONS") + options(verb.options);
  out += heading("OPTIONS OF EVERY VERB") + options(global_options());
  return out + heading("EXAMPLES") + commands(verb.examples) + heading("SEE ALSO") +
         "\\fBattune\\fR(1)\n";
}

std::string program_page() {
  std::string out = title("attune", "linear attention that tunes itself") + heading("SYNOPSIS") +
                    "\\fBattune\\fR \\fIVERB\\fR [\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n" +
                    heading("VERBS");
  for (const Verb& verb : verbs()) out += term(verb.name, "", verb.summary);
  out += heading("OPTIONS OF EVERY VERB") + options(global_options()) + heading("EXIT STATUS");
  for (const auto& [status, meaning] : exit_statuses()) out += term(status, "", meaning);
  out += heading("SEE ALSO");
  for (const Verb& verb : verbs()) {
    out +=
        str("\\fBattune\\-", roff(verb.name), "\\fR(1)", &verb == &verbs().back() ? "\n" : ",\n");
  }
  return out;
}

constexpr OutputFile::Kind kPages{
    .name = "manual page of attune's",
    .is_ours = [](std::string_view head) { return head.starts_with(".TH \"ATTUNE"); }};

void write_page(const std::filesystem::path& path, const std::string& page) {
  const auto file = open_output("--folder", path.string(), kPages);
  file->write(page);
  file->commit();
}

/// attune.1, attune-run.1, ... in a folder that is made when it is not there.
void write_pages(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw ExecutionError(str("--folder ", folder.string(), ": ", error.message()));
  write_page(folder / "attune.1", program_page());
  for (const Verb& verb : verbs())
    write_page(folder / str("attune-", verb.name, ".1"), verb_page(verb));
}

ExitCode run(const Invocation& call) {
  if (const auto folder = call.options.text("folder")) {
    if (!call.words.empty()) throw UsageError("--folder takes all pages: expected no verb");
    write_pages(*folder);
    return ExitCode::kOk;
  }
  if (call.words.size() > 1) throw UsageError("expected one verb at most");
  if (call.words.empty()) {
    call.out.write(program_page());
    return ExitCode::kOk;
  }
  const Verb* verb = find_verb(call.words[0]);
  if (verb == nullptr) {
    std::vector<std::string> names;
    for (const Verb& known : verbs()) names.emplace_back(known.name);
    throw UsageError(str("no verb '", call.words[0], "'", did_you_mean(call.words[0], names)));
  }
  call.out.write(verb_page(*verb));
  return ExitCode::kOk;
}

}  // namespace

Verb man_verb() {
  return {.name = "man",
          .summary = "the manual page of attune or of a verb, for man(1)",
          .usage = {"man [VERB]", "man --folder FOLDER"},
          .examples = {"man tune | man -l -", "man --folder ~/.local/share/man/man1"},
          .details = "'make install' installs them all.",
          .options = {{"folder", '\0', "FOLDER",
                       "write all pages there, as attune.1, attune-run.1, ...", false}},
          .run = run};
}

}  // namespace attune::cli
