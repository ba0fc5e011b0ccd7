// Whole schedules of a serving engine, on every kernel of every device.
#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

#include "support/campaign.hpp"
#include "support/heuristic_context.hpp"
#include "support/host_kernels.hpp"
#include "support/serving_schedule.hpp"

namespace attune::test {
namespace {

/// Why `on` cannot serve the model, its platform's steps included; "" when it can.
std::string why_not(const KernelOnDevice& on, const ServedModel& model) {
  const auto refusal = [&](const OpInfo& op, const ErasedKernel& kernel, std::string_view problem) {
    const AnyProblem parsed = op.parse(parse_params(str(problem, model.text()), ' '));
    const Support support = kernel.erased_supports(parsed, on.info());
    return support ? std::string() : str(kernel.name(), ": ", support.reason());
  };
  std::string reason =
      refusal(*on.op, *on.kernel, "T=200 N=3 pool=yes initial_slots=yes snapshot_every=64");
  if (!reason.empty()) return reason;
  const Registry& registry = heuristic_context().registry();
  const OpInfo& decode = registry.op("recurrent_decode");
  for (const char* const step : {"B=3 T=4", "B=3 T=4 kept=yes", "B=3 T=4 R=4"}) {
    reason = "no kernel decodes";
    for (const RegisteredKernel* const kernel :
         registry.kernels(decode.name, platform_of(*on.kernel), on.info().id.backend.view())) {
      reason = refusal(decode, *kernel->kernel, step);
      if (reason.empty()) break;
    }
    if (!reason.empty()) return reason;
  }
  return "";
}

template <class T>
const T& one_of(const std::vector<T>& values, std::mt19937_64& random) {
  return values[random() % values.size()];
}

ServedModel random_model(std::mt19937_64& random) {
  const std::vector<DType> types{DType::kF32, DType::kF16, DType::kBF16};
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{
      {20, 36}, {32, 32}, {64, 64}, {128, 64}};
  ServedModel model{.dtype = one_of(types, random),
                    .states = one_of(types, random),
                    .gate = one_of(std::vector<std::string>{"g", "gk", "gamma"}, random)};
  std::tie(model.K, model.V) = one_of(sizes, random);
  return model;
}

/// Runs schedules on a kernel, every step-th from `first` on, of models that it takes; returns why
/// it takes none, "" otherwise.
std::string serve_on(const KernelOnDevice& on, int first = 0, int step = 1) {
  SCOPED_TRACE(str(on));
  constexpr int kDraws = 100;  // for one that the kernel takes
  const int schedules = campaign_length(6, 200);
  if (first >= schedules) return "no schedule falls to this part";
  int batches = 0;
  for (int seed = first; seed < schedules && !testing::Test::HasFailure(); seed += step) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    ServedModel model = random_model(random);
    std::string reason = why_not(on, model);
    for (int draw = 1; draw < kDraws && !reason.empty(); ++draw) {
      model = random_model(random);
      reason = why_not(on, model);
    }
    if (!reason.empty()) return reason;
    SCOPED_TRACE(str("seed ", seed, model.text()));
    batches += run_serving_schedule(static_cast<std::uint64_t>(seed), on, model);
  }
  EXPECT_GT(batches, 0);
  return "";
}

/// Of packed batches.
std::vector<KernelOnDevice> kernels_on(std::string_view backend) {
  std::vector<KernelOnDevice> kernels = kernels_on_devices(heuristic_context().registry());
  std::erase_if(kernels, [&](const KernelOnDevice& on) {
    return on.op->name != ops::RecurrentAttention::kName || on.info().id.backend != backend;
  });
  return kernels;
}

class ServingSchedulesOfHost : public testing::TestWithParam<KernelOnDevice> {};
INSTANTIATE_TEST_SUITE_P(Kernels, ServingSchedulesOfHost, testing::ValuesIn(kernels_on("cpu")),
                         host_kernel_name);

TEST_P(ServingSchedulesOfHost, AreOneRecurrenceOfEachSequence) {
  const std::string reason = serve_on(GetParam());
  if (!reason.empty()) GTEST_SKIP() << reason;
}

/// All kernels, in parts that processes may run side by side: their oracle runs on the host.
class ServingSchedulesOfGpu : public testing::TestWithParam<int> {};
constexpr int kParts = 12;
INSTANTIATE_TEST_SUITE_P(Parts, ServingSchedulesOfGpu, testing::Range(0, kParts));

TEST_P(ServingSchedulesOfGpu, AreOneRecurrenceOfEachSequence) {
  const std::vector<KernelOnDevice> kernels = kernels_on("gpu");
  if (kernels.empty()) {
    GTEST_SKIP() << "no GPU: " << heuristic_context().registry().why_no_devices("gpu");
  }
  std::vector<std::string> reasons;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const int first = (GetParam() + static_cast<int>(i)) % kParts;
    const std::string reason = serve_on(kernels[i], first, kParts);
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (reasons.size() == kernels.size()) GTEST_SKIP() << reasons.front();
}

}  // namespace
}  // namespace attune::test
