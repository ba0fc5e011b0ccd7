// `attune demo`: a tour in half a minute. Three problems are checked, tuned, and found again by
// another process, in a database of their own.
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include <attune/core/version.hpp>

#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "process/child_process.hpp"
#include "program/interrupt.hpp"
#include "program/verb.hpp"
#include "tuning/candidate_check.hpp"
#include "tuning/tune_progress.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kProblems[] = {
    "recurrent_attention T=512 H=4 D=64 gate=g",
    "gated_linear_attention T=512 H=4 D=64 dtype=bf16",
    "lightning_attention T=512 H=4 D=64 ht=yes",
};
constexpr std::chrono::milliseconds kTuningBudget{9'000};  // of all three
constexpr std::size_t kWidth = 80;

/// A folder that is gone afterwards.
class ScratchFolder {
 public:
  /// A new folder in TMPDIR or /tmp. Throws ExecutionError.
  explicit ScratchFolder(const std::string& prefix) {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    path_ = (error ? std::filesystem::path("/tmp") : parent) / (prefix + "XXXXXX");
    if (::mkdtemp(path_.data()) == nullptr)
      throw ExecutionError(str(path_, ": ", std::strerror(errno)));
  }
  ~ScratchFolder() {
    std::error_code ignored;  // what cannot be removed is left to whoever cleans that folder
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

/// The tour: the stages write their part of the screen as they end, and keep their rows for other
/// formats.
class Demo {
 public:
  Demo(const Invocation& call, const CommandContext& command, const ScratchFolder& folder);

  void introduce() const;
  void check();
  void tune();
  void find_again();
  void conclude() const;

  bool stopped() const { return interrupted(); }
  bool passed() const { return wrong_ == 0 && new_tunings_ == 0 && found_ == std::ssize(targets_); }
  Document document() const;

 private:
  /// The SPEC that means all problems of the tour.
  std::string problems_word() const { return str('@', folder_.file("problems.txt")); }
  void say(std::string_view text) const;
  void heading(std::string_view title, std::string_view what) const;
  std::string tone(std::string_view text, Tone tone) const {
    return toned(text, tone, call_.screen.color);
  }
  void report_check(const Target& target, const CandidateCheck& check);
  void report_tuning(const Target& target, const ConfigSelectorChain::TuneReport& report);

  const Invocation& call_;
  const CommandContext& command_;
  const ScratchFolder& folder_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<Target> targets_;
  Table checks_{{"op", "problem", "candidates", "wrong", "worst_error", "tolerance"}};
  Table tunings_{
      {"op", "problem", "kernel", "config", "default_us", "median_us", "speedup", "noise"}};
  Table found_rows_{{"op", "problem", "source", "median_us", "tunings"}};
  std::int64_t checked_ = 0;
  std::int64_t wrong_ = 0;
  std::int64_t found_ = 0;
  std::int64_t new_tunings_ = 0;
};

Demo::Demo(const Invocation& call, const CommandContext& command, const ScratchFolder& folder)
    : call_(call), command_(command), folder_(folder) {
  std::ofstream specs(folder.file("problems.txt"));
  for (const std::string_view problem : kProblems) specs << problem << '\n';
  specs.close();
  const std::vector<std::string> words{problems_word()};
  targets_ = command.targets(words);
}

void Demo::say(std::string_view text) const {
  if (!call_.for_people()) return;
  call_.out.write(text);
  call_.out.flush();  // a stage takes seconds: what is known is shown
}

void Demo::heading(std::string_view title, std::string_view what) const {
  const std::string bold =
      call_.screen.color ? str("\x1b[1m", title, "\x1b[0m") : std::string(title);
  say(str('\n', bold, "  ", what, '\n'));
}

void Demo::introduce() const {
  say(str("attune ", kVersion, ": linear attention that tunes itself\n",
          shorten(device_text(cpu_device()), kWidth),
          "\nA tour of half a minute at most, in a database of its own.\n"));
}

void Demo::report_check(const Target& target, const CandidateCheck& check) {
  checked_ += check.checked;
  wrong_ += check.wrong;
  checks_.add({target.op->name, target.text, check.checked, check.wrong, check.worst_error,
               check.tolerance});
  const bool right = check.wrong == 0;
  say(str("  ", pad_right(target.op->name, 24), pad_left(std::to_string(check.checked), 5),
          " candidates   worst error ", pad_left(number_text(check.worst_error), 7), " of ",
          pad_left(number_text(check.tolerance), 7), "   ",
          right ? tone("ok", Tone::kGood) : tone("WRONG", Tone::kBad), '\n'));
  for (const std::string& reason : check.reasons) say("    " + printable(reason) + '\n');
}

void Demo::check() {
  heading("1 Is it right?", "Every candidate against plain loops in double precision.");
  for (const Target& target : targets_) {
    if (!stopped()) report_check(target, check_candidates(command_, target, interrupted));
  }
}

void Demo::report_tuning(const Target& target, const ConfigSelectorChain::TuneReport& report) {
  const ConfigRow& row = report.row;
  const double speedup = row.default_us / row.median_us;
  tunings_.add({target.op->name, target.text, row.kernel, config_or_default(row.config),
                row.default_us, row.median_us, speedup, to_string(row.noise)});
  say(str("  ", pad_right(target.op->name, 24), pad_left(number_text(row.default_us), 8), " us -> ",
          pad_left(number_text(row.median_us), 8), " us   ", tone(ratio_text(speedup), Tone::kGood),
          "   of ", row.candidates_tried, " tried\n", shorten("    " + target.text, kWidth), '\n',
          shorten("    " + config_or_default(row.config), kWidth), '\n'));
}

void Demo::tune() {
  heading("2 What is fastest?", "The heuristic's choice, then the tuned one.");
  TuneProgress progress(command_.context().events(), targets_.size(), command_.unit(), call_.quiet);
  Tuner::Settings settings;
  settings.budget = call_.options.duration("budget").value_or(kTuningBudget) / std::ssize(targets_);
  settings.stop = interrupted;
  for (std::size_t i = 0; i < targets_.size() && !stopped(); ++i) {
    progress.begin(i, targets_[i].text);
    try {
      const auto report =
          command_.chain().tune(targets_[i].problem, command_.request(targets_[i]), settings);
      progress.clear();
      report_tuning(targets_[i], report);
    } catch (const ExecutionError&) {
      if (!stopped()) throw;  // stopped before any candidate was timed
    }
  }
}

void Demo::find_again() {
  if (stopped()) return;
  heading("3 Is it remembered?", "A second process on the same database, which may not tune.");
  std::vector<std::string> arguments{
      "run", problems_word(), "--db", folder_.file("demo.db"), "--policy", "db", "--backend", "cpu",
      "-o",  "json",          "-q"};
  for (const std::string& plugin : call_.options.texts("plugin"))
    arguments.insert(arguments.end(), {"--plugin", plugin});
  const FinishedProcess second = run_to_its_end(arguments);
  if (stopped()) return;  // so is the other process: Ctrl-C goes to both
  if (second.exit_code != 0)
    throw ExecutionError(str("the second process ended with ", second.exit_code));
  for (const auto& row : nlohmann::json::parse(second.output)) {
    const auto source = row.at("source").get<std::string>();
    const auto tunings = row.at("tunings").get<std::int64_t>();
    const auto median_us = row.at("median_us").get<double>();
    found_ += source == "persistent" ? 1 : 0;
    new_tunings_ += tunings;
    const auto op = row.at("op").get<std::string>();
    found_rows_.add({op, row.at("problem").get<std::string>(), source, median_us, tunings});
    say(str("  ", pad_right(op, 24), pad_left(number_text(median_us), 8), " us   from ", source,
            ", ", tunings, " tunings\n"));
  }
  say(str("  The whole process took ", elapsed_text(second.seconds), ".\n"));
}

void Demo::conclude() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  const std::string verdict =
      passed() ? tone("All well", Tone::kGood) : tone("Something is wrong", Tone::kBad);
  say(str('\n', verdict, ": ", count_text(checked_, "candidate"), " checked, ", wrong_, " wrong; ",
          found_, " of ", targets_.size(), " found again; ", elapsed_text(elapsed.count()), ".\n"));
  say("\nNext\n"
      "  attune ops recurrent_attention          what a problem is made of\n"
      "  attune tune gated_linear_attention T=[512:4096:*2] H=16 D=128 dtype=bf16\n"
      "                                          tune your own problems, and keep that\n"
      "  attune explain gated_linear_attention T=1000 H=16 D=128 dtype=bf16\n"
      "                                          which config a call gets, and why\n"
      "  attune help                             the other verbs\n");
}

Document Demo::document() const {
  return {{.name = "correctness", .table = checks_},
          {.name = "tuning", .table = tunings_},
          {.name = "second process", .table = found_rows_}};
}

ExitCode run(const Invocation& call) {
  if (!call.words.empty()) throw UsageError(str("'", call.words[0], "': expected no arguments"));
  const InterruptGuard guard;  // before there is anything to clean up
  const ScratchFolder folder("attune-demo-");
  const CommandContext command(
      call, {.writes_database = true, .database = folder.file("demo.db"), .backend = "cpu"});
  Demo demo(call, command, folder);
  demo.introduce();
  demo.check();
  demo.tune();
  demo.find_again();
  if (demo.stopped()) {
    write_error("attune: interrupted; the demo leaves nothing behind\n");
    return ExitCode::kInterrupted;
  }
  demo.conclude();
  if (!call.for_people()) call.print(demo.document());
  return demo.passed() ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace

Verb demo_verb() {
  return {.name = "demo",
          .summary = "a tour of half a minute: check, tune, and find again in a new process",
          .usage = {"demo [--budget TIME]"},
          .examples = {"demo", "demo --budget 3s"},
          .details =
              "Needs no GPU and touches none of your databases. Three problems: every candidate "
              "is checked against the reference, each problem is tuned, and a second process "
              "finds the results without tuning. Exit status 1 when any of that does not hold.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
