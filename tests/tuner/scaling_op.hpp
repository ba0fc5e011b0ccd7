// The op of the tuner's tests: y[i] = 2 x[i] over `rows` elements, and kernels that misbehave on
// demand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/core/op.hpp>
#include <attune/core/registry.hpp>

#include "tuner/fake_device.hpp"

namespace attune::test {

struct ScalingProblem {
  std::int64_t rows = 100;
  std::int64_t flavour = 0;  // an exact field
};
struct ScalingArgs {
  const float* x = nullptr;
  float* y = nullptr;
};

template <class Op>
class ScalingCase final : public Case {
 public:
  ScalingCase(const ScalingProblem& problem, std::uint64_t seed)
      : problem_(problem), x_(static_cast<std::size_t>(problem.rows)), y_(x_.size()) {
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = static_cast<float>((seed + 7 * i) % 17) - 7.5F;
    args_ = {x_.data(), y_.data()};
  }
  ProblemRef problem() const override { return ProblemRef::of<Op>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    if (!y_.empty())
      std::memset(y_.data(), std::to_integer<int>(poison), y_.size() * sizeof(float));
  }
  std::vector<NamedTensor> outputs() const override {
    return {{"y", ConstTensorView(y_.data(), {static_cast<std::int64_t>(y_.size())})}};
  }
  std::vector<OutputCheck> compare(const TensorMap& expected) const override {
    OutputCheck check{.name = "y", .tolerance = 1e-5};
    const std::vector<double> got(y_.begin(), y_.end());
    for (const double value : got) {
      if (!std::isfinite(value)) check.reason = "not finite";
    }
    if (const auto found = expected.find("y"); found != expected.end()) {
      check.error = relative_rms_error(got, to_doubles(found->second.view()));
    }
    check.passed = check.reason.empty() && check.error <= check.tolerance;
    return {check};
  }

 private:
  ScalingProblem problem_;
  std::vector<float> x_, y_;
  ScalingArgs args_;
};

struct Scaling {
  static constexpr std::string_view kName = "scaling";
  static constexpr std::string_view kSummary = "doubles its input";
  using Problem = ScalingProblem;
  using Args = ScalingArgs;
  static constexpr auto fields() {
    return std::tuple{field("rows", &Problem::rows, Bucket::kPow2),
                      field("flavour", &Problem::flavour)};
  }
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device&,
                                         std::uint64_t seed) {
    return std::make_unique<ScalingCase<Scaling>>(problem, seed);
  }
  static Problem reduced(const Problem& problem) {
    return {std::min<std::int64_t>(problem.rows, 9), problem.flavour};
  }
  static double bytes(const Problem& problem) { return 8.0 * static_cast<double>(problem.rows); }
  static double flops(const Problem& problem) { return static_cast<double>(problem.rows); }
};

struct ScalingAlias {
  static constexpr std::string_view kName = "doubling";
  static constexpr std::string_view kSummary = "scaling under another name";
  using Target = Scaling;
};

/// Its backward pass, which lacks a field and computes the same.
struct ScalingBackward {
  static constexpr std::string_view kName = "scaling.backward";
  static constexpr std::string_view kSummary = "doubles its input's gradient";
  using Problem = ScalingProblem;
  using Args = ScalingArgs;
  static constexpr auto fields() {
    return std::tuple{field("rows", &Problem::rows, Bucket::kPow2)};
  }
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device&,
                                         std::uint64_t seed) {
    return std::make_unique<ScalingCase<ScalingBackward>>(problem, seed);
  }
  static Problem reduced(const Problem& problem) { return Scaling::reduced(problem); }
  static double bytes(const Problem& problem) { return Scaling::bytes(problem); }
  static double flops(const Problem& problem) { return Scaling::flops(problem); }
};

template <class ForOp>
struct TiledConfigOf {
  using Op = ForOp;
  int tile = 1;
  int threads = 1;
  friend constexpr bool operator==(const TiledConfigOf&, const TiledConfigOf&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("tile", &TiledConfigOf::tile, {1, 2, 4, 8, 16, 32}),
                      launch_axis("threads", &TiledConfigOf::threads, {1, 2})};
  }
};
using TiledConfig = TiledConfigOf<Scaling>;

/// What a kernel of these tests does. The defaults are a kernel that is right, and faster the
/// larger its tile.
template <class Config>
struct ScriptOf {
  std::string name = "test.scaling.tiled";
  int version = 1;
  Config heuristic = {};
  /// The heuristic's config on a device.
  std::function<Config(Config, const DeviceInfo&)> adapt = [](Config config, const DeviceInfo&) {
    return config;
  };
  std::vector<Config> candidates = {};  // empty: all that fit
  std::function<std::string(const ScalingProblem&)> refuses = [](const ScalingProblem&) {
    return "";
  };
  std::function<std::string(const ScalingProblem&, const Config&)> misfits =
      [](const auto&, const auto&) { return ""; };
  std::function<std::optional<double>(const ScalingProblem&)> expects = [](const ScalingProblem&) {
    return std::nullopt;
  };
  std::function<double(const DeviceInfo&)> expects_on = {};  // instead of `expects`
  std::function<double(const Config&)> cost_us = [](const Config& c) {
    return 1000.0 / c.tile + c.threads;
  };
  std::function<void(const ScalingProblem&, const ScalingArgs&, const Config&)> compute =
      [](const ScalingProblem& problem, const ScalingArgs& args, const Config&) {
        for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
      };
};
using Script = ScriptOf<TiledConfig>;

template <class Config>
class ScriptedKernelOf final : public Kernel<Config> {
 public:
  ScriptedKernelOf(World& world, ScriptOf<Config> script)
      : world_(world), script_(std::move(script)) {}
  std::string_view name() const noexcept override { return script_.name; }
  int version() const noexcept override { return script_.version; }
  Support supports(const ScalingProblem& problem, const DeviceInfo&) const override {
    return answer(script_.refuses(problem));
  }
  Support fits(const ScalingProblem& problem, const DeviceInfo&,
               const Config& config) const override {
    return answer(script_.misfits(problem, config));
  }
  Config heuristic_config(const ScalingProblem&, const DeviceInfo& device) const override {
    return script_.adapt(script_.heuristic, device);
  }
  std::optional<double> expected_us(const ScalingProblem& problem,
                                    const DeviceInfo& device) const override {
    if (script_.expects_on) return script_.expects_on(device);
    return script_.expects(problem);
  }
  std::vector<Config> candidate_configs(const ScalingProblem& problem,
                                        const DeviceInfo& device) const override {
    return script_.candidates.empty() ? Kernel<Config>::candidate_configs(problem, device)
                                      : script_.candidates;
  }
  std::size_t workspace_bytes(const ScalingProblem&, const Config& config) const override {
    return static_cast<std::size_t>(config.tile) * 16;
  }
  void run(const ScalingProblem& problem, const ScalingArgs& args, const Config& config,
           const LaunchSite& site) const override {
    if (site.workspace.size() < workspace_bytes(problem, config))
      throw std::logic_error("workspace is too small");
    ++world_.launches;
    world_.launch_us = script_.cost_us(config);
    script_.compute(problem, args, config);
  }

 private:
  static Support answer(std::string reason) {
    return reason.empty() ? Support::yes() : Support::no("scripted", std::move(reason));
  }
  World& world_;
  ScriptOf<Config> script_;
};

template <class Config>
std::unique_ptr<const ErasedKernel> scripted(World& world, ScriptOf<Config> script) {
  return std::make_unique<ScriptedKernelOf<Config>>(world, std::move(script));
}

/// The oracle: right, slow, without a choice to make.
inline Script reference_script() {
  return {.name = "reference.scaling", .candidates = {{}}, .cost_us = [](const TiledConfig&) {
            return 0.5;
          }};  // suspiciously fast: it must not compete all the same
}

inline std::string text_of(const ErasedKernel& kernel, const ConfigBlob& config) {
  return std::string(kernel.name()) + " " + config_text(kernel, config);
}

}  // namespace attune::test
