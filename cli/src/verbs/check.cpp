// `attune check`: an op's results against those that a file expects.
#include <algorithm>

#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "problems/tensor_io.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

/// How many rows had each verdict.
struct Tally {
  std::int64_t passed = 0;
  std::int64_t missed = 0;
  std::int64_t skipped = 0;
  std::int64_t declined = 0;
  std::int64_t unreadable = 0;
};

class Checker {
 public:
  Checker(const CommandContext& command, bool may_decline)
      : command_(command), may_decline_(may_decline) {}

  void check_file(const std::string& path);

  Table take_table() { return std::move(table_); }
  const Tally& tally() const { return tally_; }
  /// A platform that was asked for may decline a problem; all of them together may not.
  bool no() const { return tally_.missed > 0 || (tally_.declined > 0 && !may_decline_); }

 private:
  void check_passes(const std::string& path);
  void check_pass(const std::string& path, const OpInfo& op, CaseFile& file);
  void compare(const std::string& path, const Case& on, const TensorMap& wanted,
               std::string_view kernel);
  void settle_rest(const std::string& path, const CaseFile& file);
  void add(const std::string& path, std::string_view tensor, std::string_view verdict, Tone tone,
           std::string_view reason);

  const CommandContext& command_;
  bool may_decline_;
  Table table_{{"file", "tensor", "error", "tolerance", "kernel", "verdict", "reason"}};
  Tally tally_;
};

void Checker::add(const std::string& path, std::string_view tensor, std::string_view verdict,
                  Tone tone, std::string_view reason) {
  table_.add({path, tensor, Cell(), Cell(), Cell(), Cell(verdict, tone), reason});
}

void Checker::check_file(const std::string& path) {
  try {
    check_passes(path);
  } catch (const InvalidArgument& error) {
    ++tally_.unreadable;
    add(path, "", "unreadable", Tone::kBad, error.what());
  } catch (const UsageError& error) {
    ++tally_.unreadable;
    add(path, "", "unreadable", Tone::kBad, error.what());
  }
}

void Checker::check_passes(const std::string& path) {
  CaseFile file = read_inputs(path);
  const auto name = file.inputs.attributes.find("op");
  if (name == file.inputs.attributes.end()) throw InvalidArgument("its metadata names no 'op'");
  if (file.expected.empty()) {
    ++tally_.missed;
    add(path, "", "miss", Tone::kBad, "no expect.* tensors: nothing to check");
    return;
  }
  const OpInfo& op = command_.op(name->second);
  check_pass(path, op, file);
  if (const OpInfo* backward = find_backward(command_, op);
      backward != nullptr && !file.expected.empty()) {
    check_pass(path, *backward, file);
  }
  settle_rest(path, file);
}

/// Runs one pass and takes the tensors that it produces out of what is expected.
void Checker::check_pass(const std::string& path, const OpInfo& op, CaseFile& file) {
  const Device& device = command_.device_for(op);
  const std::unique_ptr<Case> on = bind_case(op, file.inputs, device);
  TensorMap wanted;
  for (const NamedTensor& output : on->outputs()) {
    if (auto node = file.expected.extract(output.name)) wanted.insert(std::move(node));
  }
  on->reset(std::byte{0xff});
  try {
    const Choice choice = Executor(command_.context()).run(*on, command_.request(op, device));
    device.synchronize(nullptr);
    compare(path, *on, wanted, choice.kernel->name());
  } catch (const Unsupported& error) {
    ++(command_.platform() == kAutoPlatform ? tally_.missed : tally_.declined);
    add(path, op.name, "declined", Tone::kFaint, error.what());
  }
}

void Checker::compare(const std::string& path, const Case& on, const TensorMap& wanted,
                      std::string_view kernel) {
  for (const OutputCheck& check : on.compare(wanted)) {
    if (check.passed && !wanted.contains(check.name))
      continue;  // finite, and nothing was expected of it
    ++(check.passed ? tally_.passed : tally_.missed);
    table_.add({path, check.name, check.error, check.tolerance, kernel,
                check.passed ? Cell("ok", Tone::kGood) : Cell("miss", Tone::kBad),
                check.reason.empty() ? Cell() : Cell(check.reason)});
  }
}

/// What is expected and no pass produced. A decay that a layer's index gave is no input: its
/// gradient in the file is only informative.
void Checker::settle_rest(const std::string& path, const CaseFile& file) {
  const bool decay_of_layer =
      file.inputs.attributes.contains("layer_idx") && !file.inputs.tensors.contains("g_gamma");
  for (const auto& [name, tensor] : file.expected) {
    if (name == "dg_gamma" && decay_of_layer) {
      ++tally_.skipped;
      add(path, name, "skipped", Tone::kFaint, "the decay came from layer_idx");
    } else {
      ++tally_.missed;
      add(path, name, "miss", Tone::kBad, "not produced");
    }
  }
}

ExitCode run(const Invocation& call) {
  if (call.words.empty()) throw UsageError("expected files to check");
  const bool may_tune = call.options.text("policy") == "tune";
  const CommandContext command(call, {.writes_database = may_tune, .default_policy = Policy::kDb});
  Checker checker(command, call.options.flag("allow-declined"));
  for (const std::string& path : call.words) checker.check_file(path);
  call.print(checker.take_table());
  const Tally& tally = checker.tally();
  call.note(str(count_text(call.words.size(), "file"), ": ", tally.passed, " ok, ", tally.missed,
                " missed, ", tally.declined, " declined, ", tally.skipped, " skipped, ",
                tally.unreadable, " unreadable"));
  if (tally.unreadable > 0) return ExitCode::kUsage;
  return checker.no() ? ExitCode::kNo : ExitCode::kOk;
}

}  // namespace

Verb check_verb() {
  return {.name = "check",
          .summary = "compare an op's results with those that tensor files expect",
          .usage = {"check FILE..."},
          .examples = {"check case.safetensors",
                       "check golden/*.safetensors --platform simd --allow-declined",
                       "check golden/*.safetensors -o json"},
          .details =
              "A FILE holds inputs, the op's name in its metadata, and results under "
              "expect.NAME. Its op runs forward, and backward where gradients are expected; each "
              "expected tensor is compared within the op's tolerance. Exit status 1 when one is "
              "missed, or when a kernel declines the problem.\n"
              "Nothing is tuned (unless --policy tune says so): known configs are used, or the "
              "heuristic's.",
          .options = {{"allow-declined", '\0', "",
                       "a problem that the --platform does not take is no failure", false}},
          .run = run};
}

}  // namespace attune::cli
