// An op whose second release added the field `mirrored`, and its third `negated`, with kernels that
// were written before and after: y[i] = x[i], or x[n - 1 - i] where it is mirrored, and its
// negative where it is negated. The reference is of the second release.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include <attune/core/op.hpp>
#include <attune/core/plugin.hpp>

namespace {

using attune::Support;

struct CopyProblem {
  std::int64_t n = 1;
  bool mirrored = false;
  bool negated = false;
};

struct CopyArgs {
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
};

struct Copy {
  static constexpr std::string_view kName = "copy";
  static constexpr std::string_view kSummary = "copies a vector";
  using Problem = CopyProblem;
  using Args = CopyArgs;
  static constexpr auto fields() {
    return std::tuple{attune::flag("mirrored", &Problem::mirrored).optional(),
                      attune::flag("negated", &Problem::negated).optional(),
                      attune::field("n", &Problem::n, attune::Bucket::kPow2)};
  }
  static std::unique_ptr<attune::Case> make_case(const Problem& problem, const attune::Device&,
                                                 std::uint64_t seed);
  static Problem reduced(const Problem& problem) {
    return {std::min<std::int64_t>(problem.n, 8), problem.mirrored, problem.negated};
  }
  static double bytes(const Problem& problem) { return 8.0 * static_cast<double>(problem.n); }
  static double flops(const Problem&) { return 0; }
};

class CopyCase final : public attune::Case {
 public:
  CopyCase(const CopyProblem& problem, std::uint64_t seed)
      : problem_(problem), x_(static_cast<std::size_t>(problem.n)), y_(x_.size()) {
    std::iota(x_.begin(), x_.end(), static_cast<float>(seed % 100));
    args_ = {x_.data(), y_.data()};
  }
  attune::ProblemRef problem() const override { return attune::ProblemRef::of<Copy>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    std::memset(y_.data(), std::to_integer<int>(poison), y_.size() * sizeof(float));
  }
  std::vector<attune::NamedTensor> outputs() const override {
    return {{"y", attune::ConstTensorView(y_.data(), {problem_.n})}};
  }
  std::vector<attune::OutputCheck> compare(const attune::TensorMap&) const override {
    std::vector<float> expected = x_;
    if (problem_.mirrored) std::ranges::reverse(expected);
    if (problem_.negated) std::ranges::transform(expected, expected.begin(), std::negate());
    attune::OutputCheck check{.name = "y"};
    check.passed = expected == y_;
    if (!check.passed) check.reason = "differs";
    return {check};
  }

 private:
  CopyProblem problem_;
  std::vector<float> x_, y_;
  CopyArgs args_;
};

std::unique_ptr<attune::Case> Copy::make_case(const Problem& problem, const attune::Device&,
                                              std::uint64_t seed) {
  return std::make_unique<CopyCase>(problem, seed);
}

struct CopyConfig {
  using Op = Copy;
  int threads = 1;
  friend constexpr bool operator==(const CopyConfig&, const CopyConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{attune::launch_axis("threads", &CopyConfig::threads, {1, 2})};
  }
};

class CopyKernel : public attune::Kernel<CopyConfig> {
 public:
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const attune::DeviceInfo&) const override {
    return Support::yes();
  }
  CopyConfig heuristic_config(const Problem&, const attune::DeviceInfo&) const override {
    return {};
  }
};

/// Does not know `mirrored`: handed such a problem it would copy from the front.
class OfTheFirstRelease final : public CopyKernel {
 public:
  std::string_view name() const noexcept override { return "first.copy"; }
  void run(const Problem& problem, const Args& args, const CopyConfig&,
           const attune::LaunchSite&) const override {
    std::copy_n(args.x, problem.n, args.y);
  }
};

class OfTheSecondRelease final : public CopyKernel {
 public:
  std::string_view name() const noexcept override { return "reference.copy"; }
  std::vector<std::string_view> features() const override { return {"mirrored"}; }
  void run(const Problem& problem, const Args& args, const CopyConfig&,
           const attune::LaunchSite&) const override {
    std::copy_n(args.x, problem.n, args.y);
    if (problem.mirrored) std::reverse(args.y, args.y + problem.n);
  }
};

class OfTheThirdRelease final : public CopyKernel {
 public:
  std::string_view name() const noexcept override { return "third.copy"; }
  std::vector<std::string_view> features() const override { return {"negated"}; }
  Support supports(const Problem& problem, const attune::DeviceInfo&) const override {
    return problem.negated ? Support::yes() : Support::no(attune::refused::kFeature, "negates");
  }
  void run(const Problem& problem, const Args& args, const CopyConfig&,
           const attune::LaunchSite&) const override {
    std::transform(args.x, args.x + problem.n, args.y, std::negate());
  }
};

}  // namespace

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  registry.add_op<Copy>();
  registry.add(std::make_unique<OfTheSecondRelease>(), {.platform = "reference", .backend = "any"});
  registry.add(std::make_unique<OfTheFirstRelease>(),
               {.platform = "first", .backend = "cpu", .priority = 50});
  registry.add(std::make_unique<OfTheThirdRelease>(), {.platform = "third", .backend = "cpu"});
}
