// The op's case and its kernels. BAD_KERNELS in the environment names the bad ones to register,
// joined by commas; without it all are.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/core/plugin.hpp>

#include "doubling.hpp"

namespace doubling {
namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;
using attune::Tensor;

constexpr std::int64_t kReducedN = 16;

class DoublingCase final : public attune::Case {
 public:
  DoublingCase(const DoublingProblem& problem, const attune::Device& device, std::uint64_t seed)
      : problem_(problem),
        x_(attune::DType::kF32, {problem.n}, device),
        y_(attune::DType::kF32, {problem.n}, device) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> uniform(1, 2);
    for (float& value : x_.values<float>()) value = uniform(random);
    args_ = {x_.values<float>().data(), y_.values<float>().data()};
  }

  attune::ProblemRef problem() const override { return attune::ProblemRef::of<Doubling>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    std::ranges::fill(std::as_writable_bytes(y_.values<float>()), poison);
  }
  std::vector<attune::NamedTensor> outputs() const override { return {{"y", y_.view()}}; }

  std::vector<attune::OutputCheck> compare(const attune::TensorMap& expected) const override {
    attune::OutputCheck check{.name = "y", .tolerance = 1e-5};
    const std::vector<double> got = attune::to_doubles(y_.view());
    const auto bad = std::ranges::find_if(got, [](double value) { return !std::isfinite(value); });
    if (bad != got.end()) check.reason = attune::str("not finite at [", bad - got.begin(), "]");
    if (const auto found = expected.find("y"); found != expected.end()) {
      check.error = attune::relative_rms_error(got, attune::to_doubles(found->second.view()));
    }
    check.passed = check.reason.empty() && check.error <= check.tolerance;
    return {check};
  }

 private:
  DoublingProblem problem_;
  Tensor x_, y_;
  DoublingArgs args_;
};

struct NoConfig {
  using Op = Doubling;
  friend constexpr bool operator==(const NoConfig&, const NoConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

class Bad final : public attune::Kernel<NoConfig> {
 public:
  explicit Bad(const Fault& fault) : fault_(fault), name_("bad." + std::string(fault.name)) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  NoConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  std::size_t workspace_bytes(const Problem&, const NoConfig&) const override { return 100; }
  void run(const Problem& problem, const Args& args, const NoConfig&,
           const LaunchSite& site) const override {
    fault_.run(problem, args, site.workspace);
  }

 private:
  const Fault& fault_;
  std::string name_;
};

struct GoodConfig {
  using Op = Doubling;
  int times = 4;
  friend constexpr bool operator==(const GoodConfig&, const GoodConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{attune::launch_axis("times", &GoodConfig::times, {1, 4})};
  }
};

/// Right, and by default four times as slow as it could be.
class Good final : public attune::Kernel<GoodConfig> {
 public:
  std::string_view name() const noexcept override { return "good.doubling"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  GoodConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const GoodConfig& config,
           const LaunchSite&) const override {
    for (int i = 0; i < config.times; ++i) {
      run_well(problem, args);
      asm volatile("" : : "r"(args.y) : "memory");
    }
  }
};

class Reference final : public attune::Kernel<NoConfig> {
 public:
  std::string_view name() const noexcept override { return "reference.doubling"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  NoConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const NoConfig&,
           const LaunchSite&) const override {
    run_well(problem, args);
  }
};

bool is_wanted(std::string_view name) {
  const char* listed = std::getenv("BAD_KERNELS");
  if (listed == nullptr) return true;
  const std::string all = attune::str(',', listed, ',');
  return all.find(attune::str(',', name, ',')) != std::string::npos;
}

}  // namespace

std::unique_ptr<attune::Case> Doubling::make_case(const Problem& problem,
                                                  const attune::Device& device,
                                                  std::uint64_t seed) {
  return std::make_unique<DoublingCase>(problem, device, seed);
}

DoublingProblem Doubling::reduced(const Problem& problem) {
  return {std::min(problem.n, kReducedN)};
}

}  // namespace doubling

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace doubling;
  registry.add_op<Doubling>();
  registry.add(std::make_unique<Reference>(), {.platform = "reference", .backend = "any"});
  registry.add(std::make_unique<Good>(), {.platform = "good", .backend = "cpu", .priority = 100});
  for (const Fault& fault : faults()) {
    if (!is_wanted(fault.name)) continue;
    registry.add(std::make_unique<Bad>(fault), {.platform = "bad", .backend = "cpu"});
  }
}
