// Kernels: how an op is computed. An author derives from Kernel<Config> and answers seven
// questions; registry, tuner and caches hold the type-erased base.
//
//   name, version      | who it is, and whether what is stored of it still holds
//   features, supports | which problems it takes
//   fits               | with which configs, beyond the constraints that these declare
//   heuristic_config   | the default one
//   candidate_configs  | those worth measuring
//   workspace_bytes    | the scratch memory that it needs
//   run                | the work
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/config_axes.hpp>
#include <attune/core/device.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/problem.hpp>
#include <attune/core/space_of_axes.hpp>

namespace attune {

class Prepared;      // prepared_kernel.hpp
struct PrepareSite;  // prepared_kernel.hpp

/// Why a kernel does not take a problem, or a config does not fit it, in a word that programs may
/// rely on. A kernel may have words of its own, with static storage.
namespace refused {
inline constexpr std::string_view kFeature = "feature";      // it lacks one, or is for another
inline constexpr std::string_view kDType = "dtype";          // another element type
inline constexpr std::string_view kShape = "shape";          // too few, too many, no multiple
inline constexpr std::string_view kLayout = "layout";        // strides
inline constexpr std::string_view kAlignment = "alignment";  // where rows start
inline constexpr std::string_view kDevice = "device";        // another backend, an older device
inline constexpr std::string_view kMemory = "memory";        // more than the device has
inline constexpr std::string_view kInstance = "instance";    // not compiled for that config
inline constexpr std::string_view kConfig = "config";        // its values, for this problem
}  // namespace refused

/// Yes, or why not: a code (refused::kShape) and a sentence for people ("takes K <= 256"). A value,
/// since a tuner meets "no" all day.
class Support {
 public:
  static Support yes() { return {}; }
  static Support no(std::string_view code, std::string reason) {
    Support support;
    support.code_ = code;
    support.reason_ = std::move(reason);
    return support;
  }
  explicit operator bool() const { return code_.empty(); }
  std::string_view code() const { return code_; }        // "" when yes
  const std::string& reason() const { return reason_; }  // "" when yes

 private:
  std::string_view code_;
  std::string reason_;
};

/// Where a kernel runs: an opaque stream of the device's backend, and scratch memory that nobody
/// else uses until the work has run; at least workspace_bytes() of it, 64-byte aligned, contents
/// undefined.
struct LaunchSite {
  void* stream = nullptr;
  std::span<std::byte> workspace;
  const Prepared* prepared = nullptr;  // of a kernel that prepares (prepared_kernel.hpp)
  const HostThreads* threads =
      nullptr;  // the device's (Device::threads): loops of run() keep to it
};

/// A tuner races all candidates of a kernel where these are at most this many or the kernel lists
/// them itself, and searches a larger space.
inline constexpr std::size_t kFewCandidates = 512;

/// A kernel without its types. Immutable and stateless: all methods may be called from any thread.
class ErasedKernel {
 public:
  virtual ~ErasedKernel() = default;

  /// Stable and unique, "<platform>.<idea>" (".backward" for that pass): it is stored in databases.
  virtual std::string_view name() const noexcept = 0;
  /// Raised by the author when stored results may no longer hold; older rows are then stale.
  virtual int version() const noexcept = 0;

  /// The features that it understands (problem.hpp). Problems that need another one are refused
  /// before they reach it.
  virtual std::vector<std::string_view> features() const { return {}; }

  virtual std::string_view op() const noexcept = 0;
  /// Whether it takes the problem. The one place where a kernel is asked: it refuses for the kernel
  /// what needs a feature that it does not name, and asks supports() about the rest.
  Support erased_supports(ProblemRef problem, const DeviceInfo& device) const;
  virtual Support erased_fits(ProblemRef, const DeviceInfo&, const ConfigBlob&) const = 0;
  virtual ConfigBlob erased_heuristic(ProblemRef, const DeviceInfo&) const = 0;
  virtual std::optional<double> erased_expected_us(ProblemRef, const DeviceInfo&) const = 0;
  /// What it lists; nothing: all points of its space that fit.
  virtual std::vector<ConfigBlob> erased_list(ProblemRef, const DeviceInfo&) const = 0;
  virtual const ConfigSpace& space() const = 0;
  virtual std::size_t erased_workspace_bytes(ProblemRef, const ConfigBlob&) const = 0;
  virtual void erased_run(ProblemRef, const void* args, const ConfigBlob&,
                          const LaunchSite&) const = 0;

  /// Whether a launch needs what erased_prepare() makes (prepared_kernel.hpp).
  virtual bool prepares() const noexcept { return false; }
  /// What a launch of the config needs, made now unless it was before. Throws what the author's
  /// prepare() throws.
  virtual const Prepared* erased_prepare(ProblemRef, const ConfigBlob&, const PrepareSite&) const {
    return nullptr;
  }
  /// Null if it was not made.
  virtual const Prepared* erased_find_prepared(ProblemRef, const ConfigBlob&, const Device&) const {
    return nullptr;
  }

  virtual Params params(const ConfigBlob&) const = 0;
  virtual ConfigBlob parse(const Params&) const = 0;  // throws InvalidArgument
  virtual std::vector<AxisInfo> axes() const = 0;

  /// The candidates for a supported problem, in the order of the list or of the space, where they
  /// are few; nothing where there are more than kFewCandidates in a space, or finding them takes
  /// too long.
  std::optional<std::vector<ConfigBlob>> few_candidates(ProblemRef, const DeviceInfo&) const;
  /// All of them, however many there are.
  std::vector<ConfigBlob> erased_candidates(ProblemRef, const DeviceInfo&) const;
  CandidateCount candidate_count(ProblemRef, const DeviceInfo&) const;

 protected:
  [[noreturn]] void throw_not_prepared() const;

 private:
  virtual Support ask_supports(ProblemRef, const DeviceInfo&) const = 0;
};

/// The class an author derives from. `Config` names its op (`using Op = ...`), the op its Problem
/// and Args.
template <class Config>
class Kernel : public ErasedKernel {
  static_assert(detail::check_config<Config>());
  static_assert(sizeof(Config) <= sizeof(ConfigBlob), "a Config has at most 64 bytes");

 public:
  using Op = typename Config::Op;
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  /// Whether this kernel can compute `problem` on `device` at all, or the reason why not. It is
  /// asked only about problems whose features it names; by default it names none:
  ///
  ///   std::vector<std::string_view> features() const override { return {"gk", "packed"}; }
  virtual Support supports(const Problem& problem, const DeviceInfo& device) const = 0;

  /// Whether `config` is legal for a supported problem, or the reason why not.
  virtual Support fits(const Problem&, const DeviceInfo&, const Config&) const {
    return Support::yes();
  }

  /// A good config for a supported problem, in constant time. It always fits.
  virtual Config heuristic_config(const Problem& problem, const DeviceInfo& device) const = 0;

  /// How long a supported problem will take by heuristic_config(), in microseconds, found in
  /// constant time; nothing from a kernel that cannot tell.
  ///
  /// Of the kernels of the highest priority that take a problem, the one that expects the least is
  /// the default; those that cannot tell come after those that can, in the order of registration.
  /// Only which is less matters, so what all of one priority leave out, a slower clock or a
  /// neighbour's load, does no harm. A tuning measures, and does not ask.
  virtual std::optional<double> expected_us(const Problem&, const DeviceInfo&) const {
    return std::nullopt;
  }

  /// What a tuner tries, beside heuristic_config(). By default, and where the list is empty, every
  /// point of the axes that keeps the constraints and fits: they are not written down, and where
  /// there are many (kFewCandidates) a tuner searches among them. A constraint that asks for the
  /// problem is left aside where an axis that it names means nothing; others see its default there.
  virtual std::vector<Config> candidate_configs(const Problem&, const DeviceInfo&) const {
    return {};
  }

  /// Scratch memory that run() needs.
  virtual std::size_t workspace_bytes(const Problem&, const Config&) const { return 0; }

  /// Queues the work on the site's stream. Neither allocates nor waits on a device with streams; on
  /// a CPU it returns when the work is done. The same config gives the same bits on every run.
  virtual void run(const Problem&, const Args&, const Config&, const LaunchSite&) const = 0;

  std::string_view op() const noexcept final { return Op::kName; }
  Support erased_fits(ProblemRef p, const DeviceInfo& d, const ConfigBlob& c) const final {
    const Problem& problem = p.as<Op>();
    if (const ConfigSpace::Rule* broken = space().broken(c, &problem)) {
      return Support::no(refused::kConfig, "breaks " + std::string(broken->text));
    }
    return fits(problem, d, unpack(c));
  }
  ConfigBlob erased_heuristic(ProblemRef p, const DeviceInfo& d) const final {
    return pack(heuristic_config(p.as<Op>(), d));
  }
  std::optional<double> erased_expected_us(ProblemRef p, const DeviceInfo& d) const final {
    return expected_us(p.as<Op>(), d);
  }
  std::vector<ConfigBlob> erased_list(ProblemRef p, const DeviceInfo& d) const final {
    std::vector<ConfigBlob> blobs;
    for (const Config& config : candidate_configs(p.as<Op>(), d)) blobs.push_back(pack(config));
    return blobs;
  }
  std::size_t erased_workspace_bytes(ProblemRef p, const ConfigBlob& c) const final {
    return workspace_bytes(p.as<Op>(), unpack(c));
  }
  void erased_run(ProblemRef p, const void* args, const ConfigBlob& c,
                  const LaunchSite& site) const final {
    const ThreadsScope scope(site.threads);
    run(p.as<Op>(), *static_cast<const Args*>(args), unpack(c), site);
  }
  Params params(const ConfigBlob& c) const final { return to_params(unpack(c)); }
  ConfigBlob parse(const Params& p) const final { return pack(from_params<Config>(p)); }
  std::vector<AxisInfo> axes() const final { return axis_infos<Config>(); }

  const ConfigSpace& space() const final { return config_space<Config>(); }

  static ConfigBlob pack(const Config& config) { return detail::to_blob(config); }
  static Config unpack(const ConfigBlob& blob) { return detail::from_blob<Config>(blob); }

 private:
  Support ask_supports(ProblemRef p, const DeviceInfo& d) const final {
    return supports(p.as<Op>(), d);
  }
};

/// A kernel's config as text: "tile_v=64,threads=2"; "default" for a kernel without parameters.
std::string config_text(const ErasedKernel& kernel, const ConfigBlob& config);

}  // namespace attune
