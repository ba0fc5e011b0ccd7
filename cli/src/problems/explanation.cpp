#include "problems/explanation.hpp"

#include <algorithm>

#include "output/text.hpp"

namespace attune::cli {
namespace {

Support support_of(const Target& target, const RegisteredKernel& kernel) {
  const DeviceInfo& info = target.device->info();
  if (kernel.at.backend.view() != kAnyBackend && kernel.at.backend != info.id.backend) {
    return Support::no(refused::kDevice, str("runs on ", kernel.at.backend, ", not on ", info.id));
  }
  return kernel.kernel->erased_supports(target.problem, info);
}

void write_tiers(const Explanation& of, bool color, std::string& out) {
  int step = 0;
  for (const TierNote& note : of.decision.notes) {
    std::string line =
        str("  ", ++step, ' ', pad_right(to_string(note.tier), 10), "  ",
            toned(pad_right(outcome_text(note.outcome), 9), outcome_tone(note.outcome), color));
    // The reason of a tier that was not asked says itself what the tier would give.
    const bool says_config =
        note.config.empty() || note.reason.find(note.config) != std::string::npos;
    if (!says_config) line += "  " + printable(note.config);
    if (!note.reason.empty()) line += (says_config ? "  " : "; ") + printable(note.reason);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
}

void write_kernels(const Explanation& of, bool color, std::string& out) {
  for (const KernelNote& note : of.kernels) {
    const std::string line =
        str(note.kernel->kernel->name(), " v", note.kernel->kernel->version(), " (",
            note.kernel->at.platform, "): ", printable(support_text(note.support)));
    out += "  " + toned(line, note.support ? Tone::kPlain : Tone::kFaint, color);
    if (note.support) {
      out += str(", ", note.candidates.is_exact ? "" : "at most ",
                 count_text(note.candidates.count, "candidate"));
    }
    if (note.expected_us) out += str(", expects ", number_text(*note.expected_us), " us");
    out += '\n';
  }
}

/// "and 12 slower ones, 3 of no use".
std::string text_of_others(std::size_t slower, std::size_t of_no_use) {
  std::string text = slower > 0 ? str(slower, slower == 1 ? " slower one" : " slower ones") : "";
  if (of_no_use > 0) text += str(text.empty() ? "" : ", ", of_no_use, " of no use");
  return "and " + text;
}

void write_trials(const Explanation& of, bool many, std::string_view unit, std::string& out) {
  constexpr std::size_t kShown = 5;
  constexpr std::size_t kMany = 200;
  if (of.trials.empty()) return;
  out += str("candidates of the tuning, ", date_text(of.trials.front().created), '\n');
  const std::size_t most = many ? kMany : kShown;
  std::size_t timed = 0;
  std::size_t of_no_use = 0;
  for (const TrialRow& trial : of.trials) {
    if (++(trial.median_us > 0 ? timed : of_no_use) > most) continue;
    const std::string time =
        trial.median_us > 0 ? str(number_text(trial.median_us), ' ', unit) : "";
    out += str("  ", pad_left(time, 10), "  ", pad_right(trial.outcome, 11), "  ",
               printable(trial.kernel), ' ', printable(config_or_default(trial.config)),
               trial.reason.empty() ? "" : "  (" + printable(trial.reason) + ")", '\n');
  }
  const std::size_t slower = timed - std::min(timed, most);
  of_no_use -= std::min(of_no_use, most);
  if (slower + of_no_use == 0) return;
  out += str("  ", text_of_others(slower, of_no_use), "; ",
             many ? "'attune db show OP SPEC -o jsonl'" : "-v", " lists them\n");
}

/// The command that runs what was chosen, whatever is known or stored by then.
std::string reproduce_line(const CommandContext& command, const Target& target,
                           const Choice& choice) {
  std::string config = "kernel=" + std::string(choice.kernel->name());
  const Params params = choice.kernel->params(choice.config);
  if (!params.empty()) config += ',' + to_text(params);
  return str("attune run ", target.op->name, ' ', target.text, " --config ", config,
             command.options_text());
}

}  // namespace

std::string_view outcome_text(TierNote::Outcome outcome) {
  switch (outcome) {
    case TierNote::Outcome::kChosen:
      return "chosen";
    case TierNote::Outcome::kMiss:
      return "miss";
    case TierNote::Outcome::kRefused:
      return "refused";
    case TierNote::Outcome::kNotAsked:
      return "not asked";
  }
  return "?";
}

Tone outcome_tone(TierNote::Outcome outcome) {
  if (outcome == TierNote::Outcome::kChosen) return Tone::kGood;
  return outcome == TierNote::Outcome::kRefused ? Tone::kBad : Tone::kFaint;
}

std::string support_text(const Support& support) {
  return support ? "takes it" : "declines: " + support.reason();
}

Explanation explain(const CommandContext& command, const Target& target, Evidence& evidence) {
  Explanation explanation;
  explanation.target = &target;
  explanation.decision = command.context().explain(target.problem, command.request(target));
  for (const RegisteredKernel* kernel : command.registry().kernels(target.op->name)) {
    KernelNote note{kernel, support_of(target, *kernel)};
    if (note.support) {
      note.candidates = kernel->kernel->candidate_count(target.problem, target.device->info());
      note.expected_us = kernel->kernel->erased_expected_us(target.problem, target.device->info());
    }
    explanation.kernels.push_back(std::move(note));
  }
  explanation.trials = evidence.trials_of(command, target);
  return explanation;
}

std::string explanation_screen(const CommandContext& command, const Explanation& of, bool color,
                               bool all_trials) {
  const Target& target = *of.target;
  const auto& choice = of.decision.choice;
  std::string out = str(
      target.op->name, "  ", target.text, "\non ", device_text(*target.device), "; policy ",
      command.policy_name(),
      command.objective() == nullptr ? "" : str("; minimises ", command.objective()->name()), '\n');
  write_tiers(of, color, out);
  if (choice) {
    out += str("chosen: ", toned(choice_text(*choice), Tone::kGood, color), '\n');
  } else {
    out += str("no choice: ", toned(printable(of.decision.error), Tone::kBad, color), '\n');
  }
  out += "kernels\n";
  write_kernels(of, color, out);
  write_trials(of, all_trials, command.unit(), out);
  if (choice) out += "reproduce: " + reproduce_line(command, target, *choice) + '\n';
  return out;
}

}  // namespace attune::cli
