#include "suites/measure.hpp"

#include <algorithm>
#include <cmath>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/case_tensors.hpp>
#include <attune/core/prepared_kernel.hpp>

#include "program/interrupt.hpp"

namespace attune::cli {
namespace {

constexpr int kMostRepeats = 10'000;

/// How often one sample repeats the launch.
int repeats_for(double once_us, double min_sample_us) {
  if (once_us >= min_sample_us) return 1;
  if (once_us * kMostRepeats <= min_sample_us) return kMostRepeats;
  return static_cast<int>(std::ceil(min_sample_us / once_us));
}

}  // namespace

Cases cases_to_rotate(const OpInfo& op, ProblemRef problem, const Device& device,
                      std::uint64_t seed) {
  return cases_to_rotate(op, device, [&] { return op.make_case(problem, device, seed); });
}

Cases cases_to_rotate(const OpInfo& op, const Device& device,
                      const std::function<std::unique_ptr<Case>()>& make) {
  // Twice the cache, and an op's bytes count twice what it updates in place.
  constexpr double kCachesToFill = 4;
  constexpr double kMostCases = 64;
  const DeviceInfo& info = device.info();
  const bool host = info.id.backend == cpu_device().info().id.backend;
  Cases cases;
  cases.push_back(make());
  const double wanted = kCachesToFill * static_cast<double>(info.l2_bytes) /
                        std::max(op.bytes(cases.front()->problem()), 1.0);
  const auto count =
      host ? 1 : static_cast<std::size_t>(std::clamp(std::ceil(wanted), 1.0, kMostCases));
  const RepeatedValues repeated;  // from here on, so that a large case is not kept on the host, too
  while (cases.size() < count) cases.push_back(make());
  for (const std::unique_ptr<Case>& on : cases) on->reset(std::byte{0});
  device.synchronize(nullptr);
  return cases;
}

Launch::Launch(std::span<const std::unique_ptr<Case>> on, const Choice& choice,
               const Device& device)
    : cases_(on), choice_(choice), device_(&device) {
  const std::size_t bytes =
      choice.kernel->erased_workspace_bytes(on.front()->problem(), choice.config);
  const std::size_t words = (bytes + size_of(DType::kI32) - 1) / size_of(DType::kI32);
  workspace_ = Tensor(DType::kI32, {static_cast<std::int64_t>(words)}, device);
  scratch_ = {static_cast<std::byte*>(workspace_.view().data), bytes};
  if (choice_.prepared == nullptr) {
    choice_.prepared = choice_.kernel->erased_prepare(on.front()->problem(), choice_.config,
                                                      {device, default_artifact_cache()});
  }
  device.synchronize(nullptr);  // launches come on streams of their own
}

double Launch::time_us(int repeats) const {
  return device_->time_us(
      [&](void* stream, int repeat) {
        const Case& on = *cases_[static_cast<std::size_t>(repeat) % cases_.size()];
        choice_.kernel->erased_run(on.problem(), on.args(), choice_.config,
                                   {stream, scratch_, choice_.prepared, device_->threads()});
      },
      repeats);
}

double median_of(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                   values.end());
  if (values.size() % 2 == 1) return values[half];
  const double below =
      *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half));
  return (below + values[half]) / 2;
}

Timing summarize(std::vector<double> samples_us) {
  if (samples_us.empty()) return {};
  Timing timing;
  timing.samples = static_cast<std::int64_t>(samples_us.size());
  timing.median_us = median_of(samples_us);
  for (double& sample : samples_us) sample = std::abs(sample - timing.median_us);
  if (timing.median_us > 0) timing.spread = median_of(std::move(samples_us)) / timing.median_us;
  return timing;
}

MeasureSettings measure_settings(const Options& options) {
  MeasureSettings settings;
  settings.warmup = options.integer("warmup", 0, 1'000'000).value_or(settings.warmup);
  settings.iters = options.integer("iters", 1, 1'000'000).value_or(settings.iters);
  settings.stop = interrupted;
  return settings;
}

std::vector<Timing> measure(std::span<const Launch> launches, const MeasureSettings& settings) {
  constexpr std::int64_t kFewest = 3;
  struct Racer {
    int repeats = 1;
    double spent_us = 0;
    std::vector<double> samples;
  };
  std::vector<Racer> racers(launches.size());
  const auto sample = [&](std::size_t i) {
    const double total = launches[i].time_us(racers[i].repeats);
    racers[i].spent_us += total;
    return total / racers[i].repeats;
  };
  for (std::size_t i = 0; i < launches.size(); ++i) {
    racers[i].repeats = launches[i].round();
    racers[i].repeats *= repeats_for(sample(i) * racers[i].repeats, settings.min_sample_us);
    for (std::int64_t w = 1; w < settings.warmup && racers[i].spent_us < settings.budget_us / 4;
         ++w)
      sample(i);
    racers[i].spent_us = 0;
  }
  for (std::int64_t round = 0; round < settings.iters && !settings.stop(); ++round) {
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const bool enough = round >= kFewest && racers[i].spent_us >= settings.budget_us;
      if (!enough) racers[i].samples.push_back(sample(i));
    }
  }
  std::vector<Timing> timings;
  timings.reserve(racers.size());
  for (Racer& racer : racers) timings.push_back(summarize(std::move(racer.samples)));
  return timings;
}

}  // namespace attune::cli
