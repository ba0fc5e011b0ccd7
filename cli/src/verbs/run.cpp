// `attune run`: one call of an op, on tensors from a file or on random ones.
#include <algorithm>

#include <attune/core/environment.hpp>

#include "output/outputs.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "problems/tensor_io.hpp"
#include "program/verb.hpp"
#include "suites/measure.hpp"

namespace attune::cli {
namespace {

/// Attributes of a tensor file that options may override.
constexpr std::string_view kAttributeOptions[] = {"scale", "reverse", "layer-idx", "num-layers"};

void override_attributes(const Options& options, Attributes& attributes) {
  options.real("scale");
  options.one_of("reverse", {"yes", "no"});
  options.integer("layer-idx", 0, std::numeric_limits<std::int64_t>::max());
  options.integer("num-layers", 1, std::numeric_limits<std::int64_t>::max());
  for (const std::string_view name : kAttributeOptions) {
    if (const auto value = options.text(name)) {
      if (!options.flag("input"))
        throw UsageError(str("--", name, " goes with --input; a SPEC has fields"));
      std::string attribute(name);
      std::replace(attribute.begin(), attribute.end(), '-', '_');
      attributes[attribute] = *value;
    }
  }
}

/// One op to run: a case and the device it is on.
struct Work {
  const OpInfo* op;
  const Device* device;
  std::unique_ptr<Case> on;
};

std::vector<Work> work_from_file(const CommandContext& command, std::string_view name,
                                 bool backward, const io::TensorFile& input) {
  std::vector<Work> work;
  const OpInfo& op = command.op(name);
  const Device& device = command.device_for(op);
  work.push_back({&op, &device, bind_case(op, input, device)});
  if (backward) {
    const OpInfo& reverse = backward_of(command, op);
    work.push_back({&reverse, &device, bind_case(reverse, input, device)});
  }
  return work;
}

std::vector<Work> work_from_spec(const CommandContext& command, const Invocation& call,
                                 bool backward) {
  std::vector<Work> work;
  for (const Target& target : command.targets(call.words)) {
    work.push_back({target.op, target.device,
                    target.op->make_case(target.problem, *target.device, command.seed())});
    if (backward) {
      const OpInfo& reverse = backward_of(command, *target.op);
      const AnyProblem problem =
          reverse.parse(parse_params(target.op->text(target.problem, false), ' '));
      work.push_back(
          {&reverse, target.device, reverse.make_case(problem, *target.device, command.seed())});
    }
  }
  return work;
}

/// The time of one more call or a few, within a second; in-place outputs were copied before.
Timing time_choice(const Work& work, const Choice& choice) {
  const Launch launches[] = {Launch({&work.on, 1}, choice, *work.device)};
  return measure(launches, {.warmup = 1, .iters = 9, .budget_us = 3e5}).front();
}

std::string source_text(const Choice& choice) {
  std::string text(to_string(choice.tier));
  if (choice.tier == Tier::kMemory) text += str(" (", to_string(choice.origin), ")");
  if (choice.bucket_hit) text += ", same bucket";
  return text;
}

/// Runs one op, adds its row, and keeps its outputs where they are wanted.
void run_and_report(const CommandContext& command, const Work& item, TensorMap* outputs,
                    Table& table) {
  item.on->reset(std::byte{0xff});
  const std::uint64_t tunings = command.chain().counters().tunings;
  const Request request = command.request(*item.op, *item.device);
  const Choice choice = Executor(command.context()).run(*item.on, request);
  item.device->synchronize(nullptr);
  if (outputs != nullptr) outputs->merge(copy_outputs(*item.on, *item.device));
  const Timing timing = time_choice(item, choice);
  table.add({item.op->name, short_text(*item.op, item.on->problem()), str(item.device->info().id),
             choice.kernel->name(), config_text(*choice.kernel, choice.config), source_text(choice),
             timing.median_us, timing.samples, command.chain().counters().tunings - tunings});
}

ExitCode run(const Invocation& call) {
  const auto input_path = call.options.text("input");
  const auto output_path = call.options.text("output");
  const bool backward = call.options.flag("backward");
  if (call.words.empty()) throw UsageError("expected an op");
  if (input_path && call.words.size() > 1) {
    throw UsageError(
        str("'", call.words[1], "': the problem comes from --input; expected the op alone"));
  }
  io::TensorFile input;
  if (input_path) input = read_inputs(*input_path).inputs;
  override_attributes(call.options, input.attributes);
  std::unique_ptr<OutputFile> to;
  if (output_path) {
    if (input_path) check_not_an_input("--output", *output_path, {&*input_path, 1});
    to = open_output("--output", *output_path, io::kTensorFiles);
  }

  const std::string policy =
      call.options.text("policy").value_or(read_environment("ATTUNE_POLICY").value_or("tune"));
  const CommandContext command(call, {.writes_database = policy == "tune"});
  const std::vector<Work> work = input_path
                                     ? work_from_file(command, call.words[0], backward, input)
                                     : work_from_spec(command, call, backward);
  if (output_path && work.size() > (backward ? 2U : 1U)) {
    throw UsageError("--output: expected one problem");
  }
  Table table(
      {"op", "problem", "device", "kernel", "config", "source", "median_us", "samples", "tunings"});
  io::TensorFile output;
  for (const Work& item : work) {
    run_and_report(command, item, to ? &output.tensors : nullptr, table);
  }
  if (to) {
    output.attributes = input.attributes;
    output.attributes["op"] = work.front().op->name;
    io::write_safetensors(*to, output);
  }
  call.print(Document{{.name = "", .table = std::move(table), .record = true}});
  return ExitCode::kOk;
}

}  // namespace

Verb run_verb() {
  return {
      .name = "run",
      .summary = "call an op once, on tensors from a file or on random ones",
      .usage = {"run OP --input IN.safetensors [--output OUT.safetensors] [--backward]",
                "run OP SPEC"},
      .examples =
          {"run gated_linear_attention T=1024 H=8 D=64 dtype=bf16",
           "run recurrent_attention --input in.safetensors --output out.safetensors --backward"},
      .details =
          "Prints which kernel and config ran, where the choice came from, and how long a call "
          "takes. An unknown problem is tuned first, within --budget (2 s where it is not "
          "given); --policy db never tunes.\n"
          "IN holds the op's inputs by name, and attributes (scale, reverse, ...) in its "
          "metadata. OUT gets the outputs; with --backward the gradients as well.",
      .options = {{"input", '\0', "FILE", "tensors to run on, in the safetensors format", false},
                  {"output", '\0', "FILE", "where the outputs go, in the same format", false},
                  {"backward", '\0', "", "run the op's backward pass as well", false},
                  {"scale", '\0', "X", "attribute: factor of the output", false},
                  {"reverse", '\0', "YES|NO", "attribute: from the last token to the first", false},
                  {"layer-idx", '\0', "N", "attribute: which layer", false},
                  {"num-layers", '\0', "N", "attribute: of how many", false}},
      .run = run};
}

}  // namespace attune::cli
