// An op, an alias, a kernel and a device of the tests' own: y[i] = 2 x[i] over `rows` elements.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/core/op.hpp>

namespace attune::test {

struct ToyProblem {
  std::int64_t rows = 1;
};
struct ToyArgs {
  const float* x = nullptr;
  float* y = nullptr;
};

class ToyCase;

struct ToyOp {
  static constexpr std::string_view kName = "toy";
  static constexpr std::string_view kSummary = "doubles its input";
  using Problem = ToyProblem;
  using Args = ToyArgs;
  static constexpr auto fields() {
    return std::tuple{field("rows", &Problem::rows, Bucket::kPow2)};
  }
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device&, std::uint64_t seed);
  static Problem reduced(const Problem& problem) {
    return {std::min<std::int64_t>(problem.rows, 8)};
  }
  static double bytes(const Problem& problem) { return 8.0 * static_cast<double>(problem.rows); }
  static double flops(const Problem& problem) { return static_cast<double>(problem.rows); }
};

struct ToyAlias {
  static constexpr std::string_view kName = "toy_alias";
  static constexpr std::string_view kSummary = "toy under another name";
  using Target = ToyOp;
};

class ToyCase final : public Case {
 public:
  ToyCase(const ToyProblem& problem, std::uint64_t seed)
      : problem_(problem), x_(static_cast<std::size_t>(problem.rows)), y_(x_.size()) {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>((seed + i) % 17) - 8.0F;
    args_ = {x_.data(), y_.data()};
  }
  ProblemRef problem() const override { return ProblemRef::of<ToyOp>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    if (!y_.empty())
      std::memset(y_.data(), std::to_integer<int>(poison), y_.size() * sizeof(float));
  }
  std::vector<NamedTensor> outputs() const override {
    return {{"y", ConstTensorView(y_.data(), {static_cast<std::int64_t>(y_.size())})}};
  }
  std::vector<OutputCheck> compare(const TensorMap& expected) const override {
    const std::vector<double> got(y_.begin(), y_.end());
    const auto found = expected.find("y");
    const std::vector<double> want = found == expected.end() ? std::vector<double>(got.size())
                                                             : to_doubles(found->second.view());
    OutputCheck check{.name = "y", .tolerance = 1e-6};
    check.error = relative_rms_error(got, want);
    check.passed = found == expected.end() ? check.error < std::numeric_limits<double>::infinity()
                                           : check.error <= check.tolerance;
    if (!check.passed) check.reason = "differs";
    return {check};
  }

 private:
  ToyProblem problem_;
  std::vector<float> x_, y_;
  ToyArgs args_;
};

inline std::unique_ptr<Case> ToyOp::make_case(const Problem& problem, const Device&,
                                              std::uint64_t seed) {
  return std::make_unique<ToyCase>(problem, seed);
}

struct ToyConfig {
  using Op = ToyOp;
  int unroll = 1;
  friend constexpr bool operator==(const ToyConfig&, const ToyConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("unroll", &ToyConfig::unroll, {1, 2, 4})};
  }
};

class ToyKernel final : public Kernel<ToyConfig> {
 public:
  explicit ToyKernel(std::string name) : name_(std::move(name)) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  ToyConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const ToyConfig&,
           const LaunchSite&) const override {
    for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
  }

 private:
  std::string name_;
};

/// A second device, in host memory.
class ToyDevice final : public Device {
 public:
  ToyDevice() {
    info_.id = {"toy", 0};
    info_.name = "toy device";
    info_.device_class = "toy";
  }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    return cpu_device().allocate(bytes, stream);
  }
  void deallocate(void* p, void* stream) const noexcept override {
    cpu_device().deallocate(p, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void*) const override {
    std::memset(to, std::to_integer<int>(value), bytes);
  }
  void synchronize(void*) const override {}
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    return cpu_device().time_us(launch, repeats);
  }

 private:
  DeviceInfo info_;
};

}  // namespace attune::test
