// The op's kernels, wherever they run: a good one, bad ones, and the reference.
#pragma once

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <attune/core/kernel.hpp>

#include "doubling.hpp"

namespace doubling {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;

struct NoConfig {
  using Op = Doubling;
  friend constexpr bool operator==(const NoConfig&, const NoConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

/// Adds the name to the file of DOUBLING_LAUNCHES when this process runs the kernel first.
inline void note_launch(const std::string& name) {
  static std::set<std::string> noted;
  const char* path = std::getenv("DOUBLING_LAUNCHES");
  if (path == nullptr || !noted.insert(name).second) return;
  std::ofstream(path, std::ios::app) << name + '\n' << std::flush;
}

/// Does what its fault does.
class Bad final : public attune::Kernel<NoConfig> {
 public:
  explicit Bad(const Fault& fault, std::string_view platform = "bad")
      : fault_(fault), name_(attune::str(platform, '.', fault.name)) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  NoConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  std::size_t workspace_bytes(const Problem&, const NoConfig&) const override {
    return fault_.workspace_bytes;
  }
  void run(const Problem& problem, const Args& args, const NoConfig&,
           const LaunchSite& site) const override {
    note_launch(name_);
    fault_.run(problem, args, site);
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
  Good(std::string_view name, Run* once) : name_(name), once_(once) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  GoodConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const GoodConfig& config,
           const LaunchSite& site) const override {
    for (int i = 0; i < config.times; ++i) once_(problem, args, site);
  }

 private:
  std::string_view name_;
  Run* once_;
};

/// Right, and only to be held against the default on the problem itself.
class Whole final : public attune::Kernel<NoConfig> {
 public:
  explicit Whole(Run* once) : once_(once) {}
  std::string_view name() const noexcept override { return "good.whole"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem& problem, const DeviceInfo&) const override {
    return problem.n > kReducedN ? Support::yes()
                                 : Support::no(attune::refused::kShape, "too few elements");
  }
  NoConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const NoConfig&,
           const LaunchSite& site) const override {
    once_(problem, args, site);
  }

 private:
  Run* once_;
};

/// What the others are held against; on the host.
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

/// Whether BAD_KERNELS in the environment names it, joined to others by commas. Without it all are
/// wanted.
inline bool is_wanted(std::string_view name) {
  const char* listed = std::getenv("BAD_KERNELS");
  if (listed == nullptr) return true;
  const std::string all = attune::str(',', listed, ',');
  return all.find(attune::str(',', name, ',')) != std::string::npos;
}

}  // namespace doubling
