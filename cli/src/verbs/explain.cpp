// `attune explain`: which config a problem gets, and what every tier said.
#include "problems/command_context.hpp"
#include "problems/explanation.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

Cell text_or_nothing(const std::string& text) { return text.empty() ? Cell() : Cell(text); }

Document document_of(const std::vector<Explanation>& explanations) {
  Table tiers({"op", "problem", "step", "tier", "outcome", "config", "reason"});
  Table kernels({"op", "problem", "kernel", "version", "platform", "backend", "candidates",
                 "expected_us", "support", "code"});
  Table trials(
      {"op", "problem", "kernel", "config", "outcome", "median_us", "samples", "error", "reason"});
  for (const Explanation& of : explanations) {
    const Target& target = *of.target;
    int step = 0;
    for (const TierNote& note : of.decision.notes) {
      tiers.add({target.op->name, target.text, ++step, to_string(note.tier),
                 outcome_text(note.outcome), text_or_nothing(note.config),
                 text_or_nothing(note.reason)});
    }
    for (const KernelNote& note : of.kernels) {
      kernels.add({target.op->name, target.text, note.kernel->kernel->name(),
                   note.kernel->kernel->version(), note.kernel->at.platform.view(),
                   note.kernel->at.backend.view(), static_cast<std::int64_t>(note.candidates.count),
                   note.expected_us ? Cell(*note.expected_us) : Cell(), support_text(note.support),
                   note.support ? Cell() : Cell(note.support.code())});
    }
    for (const TrialRow& trial : of.trials) {
      trials.add({target.op->name, target.text, trial.kernel, config_or_default(trial.config),
                  trial.outcome, microseconds(trial.key, trial.median_us), trial.samples,
                  trial.error, text_or_nothing(trial.reason)});
    }
  }
  return {{.name = "tiers", .table = std::move(tiers)},
          {.name = "kernels", .table = std::move(kernels)},
          {.name = "trials", .table = std::move(trials)}};
}

ExitCode run(const Invocation& call) {
  const CommandContext command(call, {});
  const std::vector<Target> targets = command.targets(call.words);
  std::vector<Explanation> explanations;
  Evidence evidence;
  bool all_chosen = true;
  for (const Target& target : targets) {
    explanations.push_back(explain(command, target, evidence));
    all_chosen = all_chosen && explanations.back().decision.choice.has_value();
    if (!call.for_people()) continue;
    if (explanations.size() > 1) call.out.write("\n");
    call.out.write(
        explanation_screen(command, explanations.back(), call.screen.color, call.verbose));
  }
  if (!call.for_people()) call.print(document_of(explanations));
  evidence.note_damage(call);
  return all_chosen ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace

Verb explain_verb() {
  return {.name = "explain",
          .summary = "say which config a problem gets, and why",
          .usage = {"explain OP SPEC..."},
          .examples = {"explain gated_linear_attention T=1000 H=16 D=128 dtype=bf16",
                       "explain recurrent_attention T=512 H=8 D=64 --policy strict"},
          .details =
              "Prints what every tier says, in the order in which they are asked: override, "
              "overlay, pin, memory, persistent, autotune, heuristic; then each kernel with the "
              "reason why it does not take the problem, and what the tuning measured. Nothing is "
              "tuned or stored. Exit status 1 when a problem gets no config.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
