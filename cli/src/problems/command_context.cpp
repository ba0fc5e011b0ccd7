#include "problems/command_context.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <attune/cache/row_request.hpp>
#include <attune/core/environment.hpp>

#include "output/text.hpp"
#include "problems/spec.hpp"

namespace attune::cli {
namespace {

std::optional<Policy> policy_of(const Options& options, const CommandContext::Settings& settings) {
  if (const auto given = options.one_of("policy", policy_names())) {
    return parse_policy(*given);
  }
  return read_environment("ATTUNE_POLICY") ? std::nullopt : settings.default_policy;
}

/// The library goes on without a database that it cannot use; who names one on the command line
/// wants that one.
void check_named_database(ConfigSelectorChain& chain, const std::string& path, bool writes) {
  if (!is_there(path)) return;  // made by the first write, which says why when it cannot
  for (const ConfigStore::FileStatus& file : chain.store().status()) {
    if (file.layer != Layer::kUser) continue;
    if (!file.used || (writes && !file.writable))
      throw CacheError(str("--db ", path, ": ", file.reason));
  }
}

}  // namespace

CommandContext::CommandContext(const Invocation& call, const Settings& settings) : call_(&call) {
  const Options& options = call.options;
  ContextOptions context;
  if (call.register_ops != nullptr) context.register_kernels = {call.register_ops};
  context.plugins = options.texts("plugin");
  context.policy = policy_of(options, settings);
  context.database = settings.database ? settings.database : options.text("db");
  backend_ = options.flag("backend") ? options.text("backend") : settings.backend;
  if (!settings.writes_database) context.read_only = true;
  constexpr std::int64_t kMostThreads = 1'000'000;
  if (!settings.lists_threads) {
    const auto threads = options.integer("threads", 1, kMostThreads);
    if (threads) context.max_threads = static_cast<int>(*threads);
  }
  if (const auto name = options.one_of("objective", {"time", "energy"})) {
    objective_ = context.objective = find_objective(*name);
  }
  // These variables are for the programs that are looked at and that serve.
  context.stats = "";
  context.reload_every = std::chrono::milliseconds(0);
  seed_ = static_cast<std::uint64_t>(
      options.integer("seed", 0, std::numeric_limits<std::int64_t>::max()).value_or(1));
  const auto budget = options.duration("budget");
  policy_name_ = context.policy ? to_string(*context.policy)
                                : read_environment("ATTUNE_POLICY").value_or("tune");
  context_ = make_framework_context(context);
  read_platform(call);
  read_config(call);
  read_bounds(call);
  if (budget) {
    AutotunePolicy policy = chain().policy();
    policy.problem_budget = *budget;
    policy.process_budget = *budget;
    budget_.emplace(policy);
  }
  if (context.database && !context.database->empty()) {
    check_named_database(chain(), *context.database, settings.writes_database);
  }
}

void CommandContext::read_platform(const Invocation& call) {
  std::vector<std::string> legal = registry().platforms();
  legal.emplace_back(kAutoPlatform);
  platform_ = call.options.one_of("platform", legal).value_or(std::string(kAutoPlatform));
}

void CommandContext::read_config(const Invocation& call) {
  const auto text = call.options.text("config");
  if (!text) return;
  try {
    config_ = NamedConfig::parse(*text);
  } catch (const InvalidArgument& error) {
    throw UsageError(str("--config '", *text, "': ", error.what()));
  }
  if (config_->kernel.empty() || registry().find_kernel(config_->kernel) != nullptr) return;
  std::vector<std::string> known;
  for (const OpInfo* op : registry().ops()) {
    for (const RegisteredKernel* kernel : registry().kernels(op->name))
      known.emplace_back(kernel->kernel->name());
  }
  throw UsageError(
      str("--config: no kernel '", config_->kernel, "'", did_you_mean(config_->kernel, known)));
}

void CommandContext::read_bounds(const Invocation& call) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto bytes = [&](std::string_view name) {
    const auto given = call.options.integer(name, 0, kMost);
    return given ? static_cast<std::size_t>(*given) : kNoLimit;
  };
  workspace_limit_ = bytes("workspace-limit");
  constraints_.workspace_bytes = bytes("max-workspace");
  if (const auto error = call.options.real("max-error")) constraints_.error = *error;
  if (constraints_.error < 0) {
    throw UsageError(
        str("--max-error '", *call.options.text("max-error"), "': expected at least 0"));
  }
}

bool CommandContext::read_request(const std::string& text, Target& target) const {
  const RowRequest asked = RowRequest::parse(text);
  if (asked.objective != (objective_ == nullptr ? "" : objective_->name())) return false;
  target.platform = asked.platform;
  target.constraints = asked.constraints;
  return true;
}

const OpInfo& CommandContext::op(std::string_view name) const {
  if (const OpInfo* found = registry().find_op(name)) return *found;
  std::vector<std::string> known;
  for (const OpInfo* op : registry().ops()) known.emplace_back(op->name);
  throw UsageError(
      str("no op '", name, "'", did_you_mean(name, known),
          known.empty() ? ": this attune has no ops of its own, --plugin brings some" : "",
          " ('attune ops' lists them)"));
}

std::vector<ListedProblem> CommandContext::listed(std::span<const std::string> words) const {
  std::vector<ListedProblem> problems;
  for (const Spec& spec : read_specs(words)) {
    const std::string where = spec.source.empty() ? "" : spec.source + ": ";
    try {
      add_problems(spec, problems);
    } catch (const UsageError& error) {
      throw UsageError(where + error.what());
    } catch (const InvalidArgument& error) {
      throw UsageError(where + error.what());
    }
  }
  return problems;
}

void CommandContext::add_problems(const Spec& spec, std::vector<ListedProblem>& problems) const {
  if (spec.op.empty()) {
    throw UsageError(
        "expected an op and the fields of its problem, as in 'recurrent_attention T=512 H=8 "
        "D=64'");
  }
  for (NamedProblem& named : expand(spec)) {
    const OpInfo& info = op(named.op);
    problems.push_back({&info, info.parse(std::move(named.params)), spec.recorded.device_class,
                        spec.recorded.platform, spec.recorded.hits});
  }
}

std::vector<Target> CommandContext::targets(std::vector<ListedProblem> problems) const {
  std::vector<Target> targets;
  std::map<std::tuple<std::string_view, const Device*, std::string, std::string>, std::size_t> seen;
  std::size_t elsewhere = 0;
  for (ListedProblem& listed : problems) {
    const OpInfo& info = *listed.op;
    const Device* device = device_for(info, listed.device_class);
    if (device == nullptr) {
      ++elsewhere;
      continue;
    }
    const auto [known, is_new] = seen.try_emplace(
        {info.name, device, listed.platform, info.text(listed.problem, false)}, targets.size());
    if (!is_new) {
      std::int64_t& hits = targets[known->second].hits;
      hits = std::min(hits + listed.hits, RecordedCalls::kMostHits);
      continue;
    }
    Target target{&info, listed.problem, device, short_text(info, listed.problem)};
    target.hits = listed.hits;
    if (!listed.platform.empty()) read_request(listed.platform, target);
    targets.push_back(std::move(target));
    if (targets.size() > kMaxProblems)
      throw UsageError(str("more than ", kMaxProblems, " problems"));
  }
  if (elsewhere > 0) {
    call_->note(str(count_text(elsewhere, "recorded problem is of a device that is",
                               "recorded problems are of devices that are"),
                    " not here; --backend takes ", elsewhere == 1 ? "it" : "them",
                    " all the same"));
  }
  return targets;
}

Request CommandContext::request(const Target& target) const {
  Request wanted = request(*target.op, *target.device);
  wanted.platform = platform_for(target.platform);
  if (target.constraints.any() && !constraints_.any()) wanted.constraints = target.constraints;
  return wanted;
}

const std::string& CommandContext::platform_for(const std::string& recorded) const {
  return recorded.empty() || call_->options.flag("platform") ? platform_ : recorded;
}

Request CommandContext::request(const OpInfo& op, const Device& device) const {
  Request request;
  request.device = &device;
  request.platform = platform_;
  request.config = config_ ? &*config_ : nullptr;
  request.called_as = op.name;
  request.workspace_limit = workspace_limit_;
  request.constraints = constraints_;
  return request;
}

std::vector<const RegisteredKernel*> CommandContext::competitors(const Target& target) const {
  const DeviceInfo& info = target.device->info();
  std::vector<const RegisteredKernel*> kernels =
      registry().kernels(target.op->name, platform_, info.id.backend.view());
  std::erase_if(kernels, [&](const RegisteredKernel* kernel) {
    const bool oracle = kernel->at.platform.view() == kReferencePlatform;
    return (oracle && platform_ != kReferencePlatform) ||
           !kernel->kernel->erased_supports(target.problem, info);
  });
  return kernels;
}

std::string CommandContext::options_text() const {
  std::string text;
  for (const char* name : {"backend", "device", "platform", "threads", "workspace-limit",
                           "max-workspace", "max-error", "objective", "db"}) {
    if (const auto value = call_->options.text(name)) text += str(" --", name, " ", *value);
  }
  for (const std::string& plugin : call_->options.texts("plugin")) text += " --plugin " + plugin;
  return text;
}

std::string short_text(const OpInfo& op, ProblemRef problem) {
  const std::string full = op.text(problem, false);
  Params params = parse_params(full, ' ');
  const auto still_means_it = [&](const Params& fewer) {
    try {
      return op.text(op.parse(fewer), false) == full;
    } catch (const InvalidArgument&) {
      return false;  // the field has no default that is legal
    }
  };
  for (std::size_t i = params.size(); i-- > 0;) {
    Params fewer = params;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (still_means_it(fewer)) params = std::move(fewer);
  }
  return to_text(params, ' ');
}

std::string CommandContext::row_request(const Target& target) const {
  return RowRequest{platform_for(target.platform),
                    objective_ == nullptr ? "" : std::string(objective_->name()),
                    constraints_.any() ? constraints_ : target.constraints}
      .text();
}

std::string CommandContext::row_request(const ListedProblem& problem) const {
  Target asked;
  if (!problem.platform.empty()) read_request(problem.platform, asked);
  return row_request(asked);
}

RowKey row_key(const CommandContext& command, const Target& target) {
  return {.op = std::string(target.op->kernel_op),
          .device_class = target.device->info().device_class,
          .platform = command.row_request(target),
          .problem = target.op->text(target.problem, false)};
}

Cell microseconds(const RowKey& key, double value) {
  return objective_of(key.platform).empty() ? Cell::unless_zero(value) : Cell();
}

std::string choice_text(const Choice& choice) {
  return str(choice.kernel->name(), ' ', config_text(*choice.kernel, choice.config));
}

}  // namespace attune::cli
