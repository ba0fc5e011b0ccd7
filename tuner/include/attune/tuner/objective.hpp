// What a tuning minimises: the time of a launch, or a value of the author's own.
//
//   class Traffic final : public attune::Objective {
//    public:
//     std::string_view name() const noexcept override { return "traffic"; }
//     std::string_view unit() const noexcept override { return "KiB"; }
//     double score(const attune::ScoredLaunches& launches) const override {
//       const std::int64_t before = read_counter();
//       launches.run();
//       return static_cast<double>(read_counter() - before) / launches.count / 1024;
//     }
//   };
//   options.objective = std::make_shared<Traffic>();  // ContextOptions
//
// A context has one objective. Its rows are stored under the objective's name and found by contexts
// with the same one, so that values of two objectives are never compared. Candidates are checked,
// raced and confirmed as they are for time: by ratios to the default's, in one session.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <attune/core/device.hpp>
#include <attune/core/function_ref.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune {

/// A batch of launches of one candidate, back to back.
struct ScoredLaunches {
  const Candidate& candidate;
  ProblemRef problem;
  const Device& device;
  int count = 1;
  /// Runs them all, waits, and returns their time together in microseconds. To be called once, or
  /// not at all where the score follows from the candidate alone. Throws when the candidate fails:
  /// let it pass.
  FunctionRef<double()> run;
};

/// Implementations are immutable, and may be called from any thread.
class Objective {
 public:
  /// Scores outside of these bounds end a tuning; those below 1e-6 count as that.
  static constexpr double kMostScore = 1e9;

  virtual ~Objective() = default;

  /// Rows are stored under it: 1 to 16 lower-case letters, digits, '_' or '-'; another one when
  /// what is measured changes.
  virtual std::string_view name() const noexcept = 0;
  /// Of scores, for people: "uJ".
  virtual std::string_view unit() const noexcept = 0;
  /// The score of one launch, 0 to kMostScore; less is better.
  virtual double score(const ScoredLaunches& launches) const = 0;
  /// How long a batch lasts at least, in microseconds, so that score() can tell; 0: as for times.
  virtual double least_sample_us() const noexcept { return 0; }
  /// Why it cannot be measured on a device, or "". Asked before a tuning begins.
  virtual std::string why_unavailable(const Device&) const { return ""; }
};

/// "energy": what launches take of the whole GPU, in microjoules a launch, by NVML's counter
/// (nvmlDeviceGetTotalEnergyConsumption) around batches of 100 ms, from one of its ticks to
/// another: a sample takes 0.1 to 0.4 s. What the idle GPU takes around the launches is taken off;
/// what else it does meanwhile counts. `library` is loaded on first use; it comes with NVIDIA's
/// driver. `now` is the clock that ticks are dated by.
std::shared_ptr<const Objective> make_energy_objective(
    std::string library = "libnvidia-ml.so.1",
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now);

/// "time" (null) and "energy". Throws InvalidArgument for another name.
std::shared_ptr<const Objective> find_objective(std::string_view name);

/// "us", or the unit of the settings' objective.
std::string_view unit_of(const Tuner::Settings& settings);
/// "" for time: what rows are stored under.
std::string_view objective_name(const Tuner::Settings& settings);

}  // namespace attune
