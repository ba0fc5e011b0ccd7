// Rows of the same CPU for another number of threads. A process that taskset, a container or
// max_threads holds to a few cores is of another device class; where nothing else is known there,
// what was tuned for more or fewer threads serves.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>

#include "chain/tiers.hpp"

namespace attune::chain {
namespace {

/// Whether two classes are of one CPU, and differ in nothing but the cores that calls may take.
bool differ_in_cores(const DeviceInfo& a, const DeviceInfo& b) {
  return a.arch == b.arch && a.features == b.features && a.l1_bytes == b.l1_bytes &&
         a.l2_bytes == b.l2_bytes && a.l3_bytes == b.l3_bytes && a.cores != b.cores;
}

struct OtherRow {
  ConfigStore::Hit hit;
  DeviceInfo there;    // what it was tuned on
  double octaves = 0;  // between the numbers of threads
};

/// The nearest first.
std::vector<OtherRow> rows_of_this_cpu(State& state, Call& call) {
  std::vector<OtherRow> rows;
  const auto here = state.registry.describe_device_class(call.info().device_class);
  if (!here || call.info().id.backend != cpu_device().info().id.backend) return rows;
  for (ConfigStore::Hit& hit : state.store().find_elsewhere(call.row_key())) {
    if (hit.row.key.platform != call.row_key().platform) continue;
    auto there = state.registry.describe_device_class(hit.row.key.device_class);
    if (!there || there->id.backend != here->id.backend || !differ_in_cores(*there, *here))
      continue;
    const double octaves = std::abs(std::log2(static_cast<double>(there->cores) / here->cores));
    rows.push_back({std::move(hit), *std::move(there), octaves});
  }
  std::ranges::stable_sort(rows, std::less(), &OtherRow::octaves);
  return rows;
}

/// The row with its config for this number of threads: what the kernel's heuristic has otherwise
/// there, as the number of threads itself, is as the heuristic has it here; the rest is as tuned.
ConfigRow for_own_cores(const Call& call, const ErasedKernel& kernel, const OtherRow& other) {
  const Params here = kernel.params(kernel.erased_heuristic(call.problem, call.info()));
  const Params away = kernel.params(kernel.erased_heuristic(call.problem, other.there));
  ConfigRow row = other.hit.row;
  Params params = parse_params(row.config);
  for (Param& param : params) {
    const std::string* own = find_param(here, param.name);
    const std::string* theirs = find_param(away, param.name);
    if (own != nullptr && theirs != nullptr && *own != *theirs) param.value = *own;
  }
  row.config = to_text(params);
  return row;
}

/// The candidate, or why there is none: among others, that the heuristic takes another kernel for
/// as many threads, so that what is best has changed in between.
Resolved resolve_other(State& state, Call& call, const OtherRow& other) {
  const auto here = competitors(state, call);
  const auto there = competitors(state, call, call.problem, other.there);
  const RegisteredKernel* tuned = state.registry.find_kernel(other.hit.row.kernel);
  if (here.empty() || there.empty() || here.front() != there.front()) {
    return {std::nullopt, "the heuristic takes another kernel there"};
  }
  if (tuned == nullptr || tuned->kernel->op() != call.op.kernel_op ||
      !tuned->kernel->erased_supports(call.problem, call.info()) ||
      !tuned->kernel->erased_supports(call.problem, other.there)) {
    return {std::nullopt, str(other.hit.row.kernel, " does not take it here")};
  }
  try {
    return validate_row(state, call, for_own_cores(call, *tuned->kernel, other));
  } catch (const InvalidArgument& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace

Answer ask_other_cores(State& state, Call& call) {
  Answer none = Answer::miss("");
  if (!call.policy.use_databases) return none;
  for (const OtherRow& other : rows_of_this_cpu(state, call)) {
    const std::string threads = count_text(other.there.cores, "thread");
    const Resolved resolved = resolve_other(state, call, other);
    if (!resolved.candidate) {
      none.refusals.push_back(str("tuned for ", threads, ": ", resolved.reason));
      continue;
    }
    Answer answer =
        Answer::chosen(Tier::kHeuristic, *resolved.candidate,
                       str("as tuned on this CPU for ", threads, "; ", describe_row(other.hit)));
    answer.neighbour = true;
    answer.refusals = std::move(none.refusals);
    return answer;
  }
  return none;
}

}  // namespace attune::chain
