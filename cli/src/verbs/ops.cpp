// `attune ops`: what is registered.
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

Document list_ops(const CommandContext& command) {
  Table table({"op", "kernels", "platforms", "same_as", "summary"});
  for (const OpInfo* op : command.registry().ops()) {
    std::vector<std::string> platforms;
    for (const RegisteredKernel* kernel : command.registry().kernels(op->name)) {
      const std::string platform(kernel->at.platform.view());
      if (std::find(platforms.begin(), platforms.end(), platform) == platforms.end())
        platforms.push_back(platform);
    }
    table.add({op->name, command.registry().kernels(op->name).size(), join(platforms, ","),
               op->kernel_op == op->name ? Cell() : Cell(op->kernel_op), op->summary});
  }
  return {{.name = "", .table = std::move(table)}};
}

std::string labels_text(const FieldInfo& field) {
  if (field.label_kind == Labels::kNone) return "a whole number";
  std::vector<std::string> labels(field.labels.begin(), field.labels.end());
  if (field.label_kind == Labels::kBits) return join(labels, ", ") + ", joined by '+', or none";
  return join(labels, ", ");
}

/// Whether a problem can only be sampled with a size of ours: a number that near values do not
/// share.
bool is_size(const FieldInfo& field) {
  return field.label_kind == Labels::kNone && field.bucket == Bucket::kExact;
}

/// A legal problem with `params` and otherwise the op's defaults; sizes have a usual value where
/// there is none.
std::optional<AnyProblem> sample_problem(const OpInfo& op, const Params& params = {}) {
  for (const char* size : {"", "64", "8", "1"}) {
    Params given = params;
    for (const FieldInfo& field : op.fields) {
      if (is_size(field) && *size != '\0') given.push_back({std::string(field.name), size});
    }
    try {
      return op.parse(std::move(given));
    } catch (const InvalidArgument&) {
      continue;  // the next size may be legal
    }
  }
  return std::nullopt;
}

Table fields_table(const OpInfo& op) {
  const auto sample = sample_problem(op);
  const Params defaults = sample ? parse_params(op.text(*sample, false), ' ') : Params();
  Table table({"field", "values", "default", "bucket"});
  for (const FieldInfo& field : op.fields) {
    const std::string* value = is_size(field) ? nullptr : find_param(defaults, field.name);
    Cell usual = value != nullptr ? Cell(*value) : Cell();
    if (field.is_optional) usual = detail::label_text(field, 0);
    table.add({field.name, labels_text(field), std::move(usual),
               field.bucket == Bucket::kPow2 ? "power of two" : "exact"});
  }
  return table;
}

/// What a kernel refuses of the values that fields may take, each tried on a sample problem.
std::string declined_values(const OpInfo& op, const ErasedKernel& kernel,
                            const DeviceInfo& device) {
  std::vector<std::string> declined;
  for (const FieldInfo& field : op.fields) {
    if (field.label_kind == Labels::kNone) continue;
    for (const std::string_view label : field.labels) {
      const auto problem = sample_problem(op, {{std::string(field.name), std::string(label)}});
      if (problem && !kernel.erased_supports(*problem, device))
        declined.push_back(str(field.name, '=', label));
    }
  }
  return join(declined, " ");
}

/// The device to ask a kernel about: the first it may run on.
const Device* device_of(const CommandContext& command, const RegisteredKernel& kernel) {
  for (const Device* device : command.registry().devices()) {
    const bool any = kernel.at.backend.view() == kAnyBackend;
    if (any || kernel.at.backend == device->info().id.backend) return device;
  }
  return nullptr;
}

/// Whether it takes the sample problem on its device, and what values it refuses.
std::string support_text(const CommandContext& command, const OpInfo& op,
                         const RegisteredKernel& kernel) {
  const Device* device = device_of(command, kernel);
  if (device == nullptr) return str("no device of backend ", kernel.at.backend);
  const auto sample = sample_problem(op);
  if (!sample) return "";
  const Support support = kernel.kernel->erased_supports(*sample, device->info());
  if (!support) return str("declines ", short_text(op, *sample), ": ", support.reason());
  const std::string declined = declined_values(op, *kernel.kernel, device->info());
  return declined.empty() ? "takes every value above" : "declines " + declined;
}

/// All values, or of many the first and the last.
std::string values_text(const AxisInfo& axis) {
  constexpr std::size_t kMost = 16;
  constexpr std::size_t kFirst = 8;
  if (axis.values.size() <= kMost) return join(axis.values, ", ");
  const std::vector<std::string> first(axis.values.begin(), axis.values.begin() + kFirst);
  return str(join(first, ", "), ", ... ", axis.values.back(), " (", axis.values.size(), " values)");
}

/// What its points must keep besides having values of the axes.
void add_constraints(const ErasedKernel& kernel, Table& table) {
  constexpr std::size_t kMost = 32;
  const std::vector<ConfigSpace::Rule>& rules = kernel.space().rules;
  for (std::size_t i = 0; i < std::min(rules.size(), kMost); ++i)
    table.add({kernel.name(), rules[i].text});
  if (rules.size() > kMost) table.add({kernel.name(), str("and ", rules.size() - kMost, " more")});
}

Document show_op(const CommandContext& command, const OpInfo& op) {
  Table about({"op", "summary", "same_as"});
  about.add({op.name, op.summary, op.kernel_op == op.name ? Cell() : Cell(op.kernel_op)});
  Table kernels({"kernel", "version", "platform", "backend", "priority", "points", "support"});
  Table axes({"kernel", "parameter", "kind", "values"});
  Table constraints({"kernel", "constraint"});
  for (const RegisteredKernel* registered : command.registry().kernels(op.name)) {
    const ErasedKernel& kernel = *registered->kernel;
    kernels.add({kernel.name(), kernel.version(), registered->at.platform.view(),
                 registered->at.backend.view(), registered->at.priority,
                 static_cast<std::int64_t>(kernel.space().size()),
                 support_text(command, op, *registered)});
    for (const AxisInfo& axis : kernel.axes()) {
      axes.add({kernel.name(), axis.name, axis.kind == AxisKind::kCompiled ? "compiled" : "launch",
                values_text(axis)});
    }
    add_constraints(kernel, constraints);
  }
  Document document{{.name = "op", .table = std::move(about), .record = true},
                    {.name = "fields", .table = fields_table(op)},
                    {.name = "kernels", .table = std::move(kernels)}};
  if (!axes.empty()) document.push_back({.name = "parameters", .table = std::move(axes)});
  if (!constraints.empty())
    document.push_back({.name = "constraints", .table = std::move(constraints)});
  return document;
}

ExitCode run(const Invocation& call) {
  if (call.words.size() > 1)
    throw UsageError(str("'", call.words[1], "': expected one op at most"));
  const CommandContext command(call, {});
  if (command.registry().ops().empty())
    call.note("this attune has no ops of its own: --plugin or ATTUNE_PLUGINS brings some");
  call.print(call.words.empty() ? list_ops(command) : show_op(command, command.op(call.words[0])));
  return ExitCode::kOk;
}

}  // namespace

Verb ops_verb() {
  return {
      .name = "ops",
      .summary = "list what is registered: ops, kernels, problem fields, parameters",
      .usage = {"ops [OP]"},
      .examples = {"ops", "ops recurrent_attention", "ops recurrent_attention -o json"},
      .details =
          "With an OP: the fields of its problems, which are the names a SPEC may use, and "
          "its kernels with the parameters that are tuned, what these must keep, how many points "
          "they span before that, and the values of fields that the kernels decline. Where "
          "nothing was tuned for a problem itself, one in the same bucket lends its config: "
          "values of a field round up to a power of two there, or must be equal.",
      .options = {},
      .run = run};
}

}  // namespace attune::cli
