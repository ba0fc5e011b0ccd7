#include "expected_time.hpp"

#include <algorithm>

namespace attune::cpu::simd {

namespace {

constexpr std::int64_t kLanes = 16;      // floats of an AVX-512 vector
constexpr double kPerStateByte = 0.025;  // ns, of initial and final states, beyond a core's caches

std::int64_t parts_of(std::int64_t total, std::int64_t size) { return (total + size - 1) / size; }

double in_vectors(std::int64_t channels) {
  return static_cast<double>(parts_of(channels, kLanes) * kLanes);
}

}  // namespace

Division by_head(const ops::RecurrentAttentionProblem& problem, std::int64_t tile_v,
                 std::int64_t threads) {
  return {.tasks = problem.sequences() * problem.H * parts_of(problem.V, tile_v),
          .threads = threads,
          .columns = tile_v};
}

Division by_group(const ops::RecurrentAttentionProblem& problem, std::int64_t parts,
                  std::int64_t threads) {
  return {.tasks = problem.sequences() * problem.Hkv * parts,
          .threads = threads,
          .heads = parts_of(problem.H / problem.Hkv, parts),
          .columns = problem.V};
}

double expected_us(const TokenCosts& costs, const ops::RecurrentAttentionProblem& problem,
                   const Division& division) {
  if (division.tasks == 0) return 0;
  const double keys = in_vectors(problem.K);
  const double values = in_vectors(std::min(problem.V, division.columns));
  double token = costs.token + costs.channel * (keys + values) + costs.product * keys * values;
  if ((problem.gates & (ops::kGateG | ops::kGateGamma)) != 0) token += costs.g;
  if ((problem.gates & ops::kGateGk) != 0) token += costs.gk * keys;
  if ((problem.gates & ops::kGateGv) != 0) token += costs.gv * values;
  const std::int64_t tokens = parts_of(problem.T, std::max<std::int64_t>(problem.N, 1));
  const double head = token * static_cast<double>(parts_of(tokens, costs.step) * costs.step) +
                      kPerStateByte * sizeof(float) * keys * values * (problem.h0 + problem.ht);
  const std::int64_t of_busiest = parts_of(division.tasks, division.threads) * division.heads;
  return 1e-3 * head * static_cast<double>(of_busiest);
}

}  // namespace attune::cpu::simd
