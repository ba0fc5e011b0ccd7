
#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "search/search.hpp"

namespace attune::tuning {
namespace {

/// Lists candidates, each once, with the outcome of those that need not run. Two are the same when
/// their texts are: the bytes of equal configs may differ in their padding.
class Collector {
 public:
  Collector(const Tuner::Request& request, Candidates& into) : request_(request), into_(into) {}

  /// The index of the candidate's trial.
  std::int64_t add(const Candidate& candidate) {
    const std::pair<std::string, std::string> name{
        candidate.kernel->name(), config_text(*candidate.kernel, candidate.config)};
    const auto [place, is_new] =
        indices_.emplace(name, static_cast<std::int64_t>(into_.trials.size()));
    if (is_new) into_.trials.push_back(make_trial(request_, candidate));
    return place->second;
  }

 private:
  const Tuner::Request& request_;
  Candidates& into_;
  std::map<std::pair<std::string, std::string>, std::int64_t> indices_;
};

/// Throws Unsupported, with every kernel's reason, where none does.
std::vector<const ErasedKernel*> kernels_that_take(const Tuner::Request& request) {
  std::vector<const ErasedKernel*> kernels;
  std::string refusals;
  for (const RegisteredKernel* entry : request.kernels) {
    const Support support = entry->kernel->erased_supports(request.problem, request.device->info());
    if (support) {
      kernels.push_back(entry->kernel.get());
    } else {
      refusals += str("\n  ", entry->kernel->name(), ": ", support.reason());
    }
  }
  if (kernels.empty()) {
    throw Unsupported(str("no kernel takes ", request.op->name, " ",
                          request.op->text(request.problem, false), ":",
                          refusals.empty() ? " none is registered" : refusals));
  }
  return kernels;
}

/// Nothing for a kernel with a large space.
std::optional<std::vector<ConfigBlob>> few_configs_of(const ErasedKernel& kernel,
                                                      const Tuner::Request& request) {
  try {
    return kernel.few_candidates(request.problem, request.device->info());
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, str(kernel.name(), ": listing its candidates failed: ", error.what()));
    return std::vector<ConfigBlob>();
  }
}

SpaceSearch search_of(const ErasedKernel& kernel, const Tuner::Request& request,
                      std::uint64_t seed) {
  const auto fits = [&kernel, problem = request.problem,
                     &info = request.device->info()](const ConfigBlob& config) -> bool {
    return static_cast<bool>(kernel.erased_fits(problem, info, config));
  };
  return {kernel.space(), request.problem.problem, fits, seed};
}

/// What other problems were tuned to, of kernels with large spaces.
std::vector<ConfigBlob> neighbours_of(const ErasedKernel& kernel,
                                      const std::vector<Candidate>& neighbours) {
  std::vector<ConfigBlob> configs;
  for (const Candidate& each : neighbours) {
    if (each.kernel == &kernel) configs.push_back(each.config);
  }
  return configs;
}

}  // namespace

Trial make_trial(const Tuner::Request& request, const Candidate& candidate) {
  Trial trial;
  trial.candidate = candidate;
  const DeviceInfo& info = request.device->info();
  const Support fits = candidate.kernel->erased_fits(request.problem, info, candidate.config);
  if (!fits) {
    trial.outcome = TrialOutcome::kUnsupported;
    trial.reason = fits.reason();
  } else if (const std::size_t bytes =
                 candidate.kernel->erased_workspace_bytes(request.problem, candidate.config);
             bytes > request.constraints.workspace_bytes) {
    trial.outcome = TrialOutcome::kUnsupported;
    trial.reason = str("needs ", bytes, " bytes of workspace, asked for were at most ",
                       request.constraints.workspace_bytes);
  } else if (std::string reason = request.refuse(candidate); !reason.empty()) {
    trial.outcome = TrialOutcome::kQuarantined;
    trial.reason = std::move(reason);
  }
  return trial;
}

Candidates collect_candidates(const Tuner::Request& request, std::uint64_t seed) {
  const DeviceInfo& info = request.device->info();
  const std::vector<const ErasedKernel*> kernels = kernels_that_take(request);

  Candidates all;
  Collector collector(request, all);
  all.default_trial =
      collector.add({kernels.front(), kernels.front()->erased_heuristic(request.problem, info)});
  const ErasedKernel* incumbent = request.incumbent.kernel;
  if (incumbent != nullptr && incumbent->erased_supports(request.problem, info)) {
    all.incumbent_trial = collector.add(request.incumbent);
  }
  // One of each kernel in turn, so that a search that is cut short has tried every kernel.
  std::vector<std::vector<ConfigBlob>> configs;
  std::optional<std::vector<Candidate>> neighbours;
  std::size_t longest = 0;
  for (const ErasedKernel* kernel : kernels) {
    if (auto few = few_configs_of(*kernel, request)) {
      configs.push_back(std::move(*few));
    } else {
      if (!neighbours) neighbours = request.neighbours();
      configs.push_back(neighbours_of(*kernel, *neighbours));
      all.spaces.push_back({kernel, search_of(*kernel, request, seed)});
    }
    configs.back().insert(configs.back().begin(), kernel->erased_heuristic(request.problem, info));
    longest = std::max(longest, configs.back().size());
  }
  for (std::size_t i = 0; i < longest; ++i) {
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      if (i < configs[k].size()) collector.add({kernels[k], configs[k][i]});
    }
  }
  return all;
}

}  // namespace attune::tuning
