// y = 2 x, by one good kernel and many that are bad, each in a way of its own: what a tuner has to
// live with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>

#include <attune/core/kernel.hpp>
#include <attune/core/registry.hpp>

namespace doubling {

inline constexpr std::int64_t kReducedN = 16;

struct DoublingProblem {
  std::int64_t n = 4096;  // >= 1
};

struct DoublingArgs {
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
};

struct Doubling {
  static constexpr std::string_view kName = "doubling";
  static constexpr std::string_view kSummary = "doubles its input";
  using Problem = DoublingProblem;
  using Args = DoublingArgs;

  static constexpr auto fields() { return std::tuple{attune::field("n", &Problem::n)}; }
  static std::unique_ptr<attune::Case> make_case(const Problem& problem,
                                                 const attune::Device& device, std::uint64_t seed);
  static Problem reduced(const Problem& problem);
  static double bytes(const Problem& problem) { return 8.0 * static_cast<double>(problem.n); }
  static double flops(const Problem& problem) { return static_cast<double>(problem.n); }
};

/// y = 2 x.
inline void run_well(const DoublingProblem& problem, const DoublingArgs& args) {
  for (std::int64_t i = 0; i < problem.n; ++i) args.y[i] = 2 * args.x[i];
}

using Run = void(const DoublingProblem&, const DoublingArgs&, const attune::LaunchSite&);

/// A way to be bad.
struct Fault {
  std::string_view name;
  Run* run;
  std::size_t workspace_bytes = 100;
};
std::span<const Fault> host_faults();

}  // namespace doubling
