// An op and a kernel of one's own, over attune's framework alone: the kernel is checked against the
// reference, tuned, stored, and found again.
//
//   y[r, c] = x[r, c] / sqrt(mean over c of x[r, c]^2 + 1e-6)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include <attune/core/function_kernel.hpp>
#include <attune/core/operand_case.hpp>
#include <attune/framework.hpp>

namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;

// 1. The op: what is computed. Its problem is what a stored config is found by.
struct RmsNormProblem {
  std::int64_t rows = 1;
  std::int64_t cols = 0;
};

struct RmsNormArgs {
  attune::ConstTensorView x;
  attune::TensorView y;
};

/// Checks of a call, random cases, cases from files and bytes follow from the operands.
struct RmsNorm : attune::OperandOp<RmsNorm> {
  static constexpr std::string_view kName = "rms_norm";
  static constexpr std::string_view kSummary = "rows divided by the root of their mean square";
  using Problem = RmsNormProblem;
  using Args = RmsNormArgs;

  static constexpr auto fields() {
    return std::tuple{attune::field("rows", &Problem::rows, attune::Bucket::kPow2),
                      attune::field("cols", &Problem::cols)};
  }
  static constexpr auto operands() {
    const auto dims = attune::dims("rows", "cols");
    return std::tuple{attune::input("x", &Args::x, dims).f32().contiguous(),
                      attune::output("y", &Args::y, dims).f32().contiguous().may_be("x")};
  }
  static constexpr auto sizes() { return std::array{attune::size_rule("cols").at_least(1)}; }
  static Problem reduced(const Problem& problem) {
    return {std::min<std::int64_t>(problem.rows, 3), problem.cols};
  }
  static double flops(const Problem& problem) {
    return 3.0 * static_cast<double>(problem.rows) * static_cast<double>(problem.cols);
  }
};

const float* row_of(const attune::ConstTensorView& x, std::int64_t row) {
  return static_cast<const float*>(x.data) + row * x.stride(0);
}
float* row_of(const attune::TensorView& y, std::int64_t row) {
  return static_cast<float*>(y.data) + row * y.stride(0);
}

// 2. What may be tuned: name, member and legal values in one place.
struct RowsConfig {
  using Op = RmsNorm;
  int sums = 4;     // partial sums of a row: a template argument, so an axis
  int threads = 1;  // a run-time value, so a launch axis
  friend constexpr bool operator==(const RowsConfig&, const RowsConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{attune::axis("sums", &RowsConfig::sums, {1, 4, 16}),
                      attune::launch_axis("threads", &RowsConfig::threads, {1, 2, 4})};
  }
};

template <class Sum, int kSums>
void norm_row(const float* x, float* y, std::int64_t cols) {
  Sum sums[kSums] = {};
  for (std::int64_t c = 0; c < cols; ++c) sums[c % kSums] += Sum(x[c]) * Sum(x[c]);
  Sum sum = 0;
  for (const Sum part : sums) sum += part;
  const Sum scale = 1 / std::sqrt(sum / static_cast<Sum>(cols) + Sum(1e-6));
  for (std::int64_t c = 0; c < cols; ++c) y[c] = static_cast<float>(Sum(x[c]) * scale);
}

// 3. The kernel: what it supports, what fits, a good default, and how to run it.
class Rows final : public attune::Kernel<RowsConfig> {
 public:
  std::string_view name() const noexcept override { return "mine.rms_norm.rows"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  RowsConfig heuristic_config(const Problem&, const DeviceInfo& device) const override {
    return {.sums = 4, .threads = device.cores >= 2 ? 2 : 1};
  }
  void run(const Problem& p, const Args& args, const RowsConfig& config,
           const LaunchSite&) const override {
    attune::dispatch(config, [&]<class Config>() {
      attune::parallel_for(p.rows, config.threads, [&](std::int64_t row) {
        norm_row<float, Config::kValue.sums>(row_of(args.x, row), row_of(args.y, row), p.cols);
      });
    });
  }
};

// 4. The reference, in double: what every candidate is checked against.
void norm_in_double(const RmsNormProblem& p, const RmsNormArgs& args) {
  for (std::int64_t row = 0; row < p.rows; ++row)
    norm_row<double, 1>(row_of(args.x, row), row_of(args.y, row), p.cols);
}

void register_mine(attune::Registry& registry) {
  registry.add_op<RmsNorm>();
  registry.add(attune::make_kernel<RmsNorm>("reference.rms_norm", 1, norm_in_double),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Rows>(), {.platform = "mine", .backend = "cpu", .priority = 10});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = argc > 1 ? argv[1] : "custom_kernel.db";
  const RmsNormProblem problem{.rows = 512, .cols = 1024};
  const attune::Extents shape{problem.rows, problem.cols};
  const std::vector<float> x(static_cast<std::size_t>(problem.rows * problem.cols), 3.0F);
  std::vector<float> y(x.size());

  for (const attune::Policy policy : {attune::Policy::kTune, attune::Policy::kDb}) {
    // Two contexts stand for two processes: the second finds in the database what the first tuned.
    const auto context = attune::make_framework_context(
        {.register_kernels = {register_mine}, .policy = policy, .database = database});
    for (const char* platform : {"auto", "mine"}) {
      const auto plan = attune::Executor(*context).plan<RmsNorm>(
          problem, {.device = &attune::cpu_device(), .platform = platform});
      plan.launch({.x = {x.data(), shape}, .y = {y.data(), shape}});
      const attune::Choice& choice = plan.choice();
      std::printf("policy %-5s platform %-5s -> %-10s %s %s\n", attune::to_string(policy).data(),
                  platform, attune::to_string(choice.tier).data(),
                  std::string(choice.kernel->name()).c_str(),
                  attune::config_text(*choice.kernel, choice.config).c_str());
      for (const float value : y) {
        if (std::abs(value - 1) > 1e-5F) return 1;
      }
    }
  }
}
