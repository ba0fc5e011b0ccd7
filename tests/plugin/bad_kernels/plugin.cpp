// The op's case and its kernels. BAD_KERNELS in the environment names the bad ones to register,
// joined by commas; without it all are. "twins" among them adds two devices.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
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
    // Every device of this plugin is in host memory.
    auto* const x = static_cast<float*>(x_.view().data);
    for (std::int64_t i = 0; i < problem.n; ++i) x[i] = uniform(random);
    args_ = {x, static_cast<float*>(y_.view().data)};
  }

  attune::ProblemRef problem() const override { return attune::ProblemRef::of<Doubling>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    std::memset(args_.y, std::to_integer<int>(poison), y_.bytes());
  }
  std::vector<attune::NamedTensor> outputs() const override { return {{"y", y_.view()}}; }

  std::vector<attune::OutputCheck> compare(const attune::TensorMap& expected) const override {
    attune::OutputCheck check{.name = "y", .tolerance = 1e-5};
    const std::vector<double> got(args_.y, args_.y + problem_.n);
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
  explicit Bad(const Fault& fault, std::string_view platform = "bad")
      : fault_(fault), name_(attune::str(platform, '.', fault.name)) {}
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
  explicit Good(std::string_view name = "good.doubling") : name_(name) {}
  std::string_view name() const noexcept override { return name_; }
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

 private:
  std::string_view name_;
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

/// Two accelerators, for as long as nobody looks closely: the host under two other names.
class Twin final : public attune::Device {
 public:
  explicit Twin(int index) : info_(attune::cpu_device().info()) {
    info_.id = {.backend = "twin", .index = index};
    info_.device_class = "twin";
  }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    return attune::cpu_device().allocate(bytes, stream);
  }
  void deallocate(void* pointer, void* stream) const noexcept override {
    attune::cpu_device().deallocate(pointer, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    attune::cpu_device().copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    attune::cpu_device().copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    attune::cpu_device().fill(to, value, bytes, stream);
  }
  void synchronize(void* /*stream*/) const override {}
  double time_us(attune::FunctionRef<void(void*, int)> launch, int repeats) const override {
    return attune::cpu_device().time_us(launch, repeats);
  }

 private:
  DeviceInfo info_;
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
  if (std::getenv("BAD_KERNELS") != nullptr && is_wanted("twins")) {
    for (const int index : {0, 1})
      registry.add(std::unique_ptr<const attune::Device>(std::make_unique<Twin>(index)));
    registry.add(std::make_unique<Good>("twin.doubling"), {.platform = "good", .backend = "twin"});
  }
  // Of a platform whose device nobody has.
  registry.add(std::make_unique<Bad>(faults()[0], "elsewhere"),
               {.platform = "elsewhere", .backend = "moon"});
  for (const Fault& fault : faults()) {
    if (!is_wanted(fault.name)) continue;
    registry.add(std::make_unique<Bad>(fault), {.platform = "bad", .backend = "cpu"});
  }
}
