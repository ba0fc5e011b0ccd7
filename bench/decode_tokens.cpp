// Steps of several tokens, and pools in 16 bits, beside one token on a pool in fp32.
//
//   B = 64, H = 8, K = V = 128, a decay per head, everything else f32, one thread. A round takes
//   one sample of each step in turn, of the thread's own time: on a machine that others use as well,
//   that of the clock is mostly theirs. Printed are the median of a step's time and the median of
//   its ratios to the one token of the same round. The config is the heuristic's but for the number
//   of threads.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/attune.hpp>

namespace {

using namespace attune;

constexpr int kRounds = 41;
constexpr const char* kSizes = "B=64 H=8 K=128 V=128 gate=g ";
constexpr const char* kSteps[] = {"",
                                  "state=bf16",
                                  "state=f16",
                                  "state=bf16 rounding=stochastic",
                                  "T=2",
                                  "T=4",
                                  "T=8",
                                  "T=4 state=bf16",
                                  "T=2 kept=yes",
                                  "T=4 kept=yes",
                                  "T=8 kept=yes",
                                  "T=4 kept=yes state=bf16",
                                  "T=2 R=2",
                                  "T=4 R=4",
                                  "T=8 R=8",
                                  "T=4 R=4 state=bf16"};

double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

/// A step with random inputs, chosen once.
class Step {
 public:
  Step(Context& context, std::string_view problem) : name_(problem) {
    using Op = ops::RecurrentDecode;
    const auto parsed = parse_problem<Op>(parse_params(std::string(kSizes) + name_, ' '));
    inputs_ = Op::make_case(parsed, cpu_device(), 1);
    Executor executor(context);
    Request request;
    request.device = &cpu_device();
    request.platform = "simd";
    const Choice best = executor.plan<Op>(parsed, request).choice();
    Params params = best.kernel->params(best.config);
    for (Param& param : params) {
      if (param.name == "threads") param.value = "1";
    }
    const NamedConfig config = NamedConfig::parse(to_text(params));
    request.config = &config;
    plan_.emplace(executor.plan<Op>(parsed, request));
    workspace_ = Tensor(DType::kF32, {static_cast<std::int64_t>(plan_->workspace_bytes() / 4 + 1)});
  }

  const std::string& name() const { return name_; }

  double sample_us() {
    const double start = thread_us();
    plan_->launch(*static_cast<const ops::RecurrentDecodeArgs*>(inputs_->args()), nullptr,
                  {static_cast<std::byte*>(workspace_.view().data), plan_->workspace_bytes()});
    return thread_us() - start;
  }

 private:
  std::string name_;
  std::unique_ptr<Case> inputs_;
  std::optional<Plan<ops::RecurrentDecode>> plan_;  // always there
  Tensor workspace_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::vector<std::unique_ptr<Step>> steps;
  for (const char* const problem : kSteps)
    steps.push_back(std::make_unique<Step>(*context, problem));
  std::vector<std::vector<double>> times(steps.size()), ratios(steps.size());
  for (int round = -2; round < kRounds; ++round) {
    double one_token_us = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i]->sample_us();  // the caches are as its own calls leave them
      const double us = steps[i]->sample_us();
      if (i == 0) one_token_us = us;
      if (round < 0) continue;
      times[i].push_back(us);
      ratios[i].push_back(us / one_token_us);
    }
  }
  std::printf("%s\n| step | us | to one token |\n|---|---|---|\n", kSizes);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string name = steps[i]->name().empty() ? "one token, f32" : steps[i]->name();
    std::printf("| %s | %.0f | %.2f |\n", name.c_str(), median(times[i]), median(ratios[i]));
  }
}
