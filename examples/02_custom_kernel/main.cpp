// An op and a kernel of one's own, over attune's framework alone: the kernel is checked against the
// reference, tuned, stored, and found again.
//
//   y[r, c] = x[r, c] / sqrt(mean over c of x[r, c]^2 + 1e-6)
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <attune/framework.hpp>

namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;
using attune::Tensor;

// 1. The op: what is computed. Its problem is what a stored config is found by.
struct RmsNormProblem {
  std::int64_t rows = 1;
  std::int64_t cols = 0;
};

struct RmsNormArgs {
  const float* x = nullptr;  // [rows, cols]
  float* y = nullptr;        // [rows, cols]
};

struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  static constexpr std::string_view kSummary = "rows divided by the root of their mean square";
  using Problem = RmsNormProblem;
  using Args = RmsNormArgs;

  static constexpr auto fields() {
    return std::tuple{attune::field("rows", &Problem::rows, attune::Bucket::kPow2),
                      attune::field("cols", &Problem::cols)};
  }
  static std::unique_ptr<attune::Case> make_case(const Problem& problem, const attune::Device&,
                                                 std::uint64_t seed);
  static Problem reduced(const Problem& problem) {
    return {std::min<std::int64_t>(problem.rows, 3), problem.cols};
  }
  static double bytes(const Problem& problem) { return 8.0 * elements(problem); }
  static double flops(const Problem& problem) { return 3.0 * elements(problem); }
  static double elements(const Problem& problem) {
    return static_cast<double>(problem.rows) * static_cast<double>(problem.cols);
  }
};

// 2. A case: random inputs, and how outputs are compared. Tuners check and time candidates on it.
class RmsNormCase final : public attune::Case {
 public:
  RmsNormCase(const RmsNormProblem& problem, std::uint64_t seed)
      : problem_(problem),
        x_(attune::DType::kF32, {problem.rows, problem.cols}),
        y_(attune::DType::kF32, {problem.rows, problem.cols}) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    for (float& value : x_.values<float>()) value = normal(generator);
    args_ = {x_.values<float>().data(), y_.values<float>().data()};
  }

  attune::ProblemRef problem() const override { return attune::ProblemRef::of<RmsNorm>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    std::memset(args_.y, std::to_integer<int>(poison), y_.bytes());
  }
  std::vector<attune::NamedTensor> outputs() const override { return {{"y", y_.view()}}; }
  std::vector<attune::OutputCheck> compare(const attune::TensorMap& expected) const override {
    const std::vector<double> y = attune::to_doubles(y_.view());
    attune::OutputCheck check{.name = "y", .tolerance = 2e-5};
    const auto found = expected.find("y");
    check.error = attune::relative_rms_error(
        y, found == expected.end() ? y : attune::to_doubles(found->second.view()));
    check.passed = check.error <= check.tolerance;
    return {check};
  }

 private:
  RmsNormProblem problem_;
  Tensor x_, y_;
  RmsNormArgs args_;
};

std::unique_ptr<attune::Case> RmsNorm::make_case(const Problem& problem, const attune::Device&,
                                                 std::uint64_t seed) {
  return std::make_unique<RmsNormCase>(problem, seed);
}

// 3. What may be tuned: name, member and legal values in one place.
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

// 4. The kernel: what it supports, what fits, a good default, and how to run it.
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
        norm_row<float, Config::kValue.sums>(args.x + row * p.cols, args.y + row * p.cols, p.cols);
      });
    });
  }
};

// 5. The reference, in double: what every candidate is checked against.
struct ReferenceConfig {
  using Op = RmsNorm;
  friend constexpr bool operator==(const ReferenceConfig&, const ReferenceConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

class Reference final : public attune::Kernel<ReferenceConfig> {
 public:
  std::string_view name() const noexcept override { return "reference.rms_norm"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  ReferenceConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& p, const Args& args, const ReferenceConfig&,
           const LaunchSite&) const override {
    for (std::int64_t row = 0; row < p.rows; ++row)
      norm_row<double, 1>(args.x + row * p.cols, args.y + row * p.cols, p.cols);
  }
};

void register_mine(attune::Registry& registry) {
  registry.add_op<RmsNorm>();
  registry.add(std::make_unique<Reference>(), {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Rows>(), {.platform = "mine", .backend = "cpu", .priority = 10});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = argc > 1 ? argv[1] : "custom_kernel.db";
  const RmsNormProblem problem{.rows = 512, .cols = 1024};
  const std::vector<float> x(static_cast<std::size_t>(problem.rows * problem.cols), 3.0F);
  std::vector<float> y(x.size());

  for (const attune::Policy policy : {attune::Policy::kTune, attune::Policy::kDb}) {
    // Two contexts stand for two processes: the second finds in the database what the first tuned.
    const auto context = attune::make_framework_context(
        {.register_kernels = {register_mine}, .policy = policy, .database = database});
    for (const char* platform : {"auto", "mine"}) {
      const auto plan = attune::Executor(*context).plan<RmsNorm>(
          problem, {.device = &attune::cpu_device(), .platform = platform});
      plan.launch({x.data(), y.data()});
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
