#include "measuring/harness.hpp"

#include <algorithm>
#include <cmath>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/case_tensors.hpp>
#include <attune/core/prepared_kernel.hpp>

namespace attune::tuning {
namespace {

constexpr double kCachesToFill = 4;  // an op that updates in place counts its bytes twice
constexpr int kMostCopies = 64;

}  // namespace

Harness::Harness(const OpInfo& op, ProblemRef problem, const Device& device, std::uint64_t seed,
                 int copies)
    : device_(&device), guarded_(device), scratch_(nullptr, Release{&guarded_}) {
  cases_.push_back(op.make_case(problem, guarded_, seed));
  const RepeatedValues repeated;  // from here on, so that a problem without copies keeps none here
  for (int i = 1; i < copies; ++i) cases_.push_back(op.make_case(problem, device, seed));
}

std::map<const void*, std::uint64_t> Harness::sums_of_inputs() const {
  std::vector<const void*> written{scratch_.get()};
  for (const NamedTensor& output : first().outputs()) written.push_back(output.view.data);
  return guarded_.sums_of_unwritten(written);
}

void Harness::reset(std::byte poison) {
  cases_.front()->reset(poison);
  device_->synchronize(nullptr);
}

void Harness::reserve(const Candidate& candidate) {
  prepared_ = candidate.kernel->erased_prepare(problem(), candidate.config,
                                               {*device_, default_artifact_cache()});
  const std::size_t bytes = candidate.kernel->erased_workspace_bytes(problem(), candidate.config);
  if (bytes <= scratch_bytes_) return;
  scratch_.reset();
  scratch_bytes_ = 0;
  scratch_.reset(static_cast<std::byte*>(guarded_.allocate(bytes, nullptr)));
  scratch_bytes_ = bytes;
  // Launches come on streams of their own: the memory must be there for all of them.
  device_->synchronize(nullptr);
}

LaunchSite Harness::site_of(const Candidate& candidate, void* stream) {
  const std::size_t bytes = candidate.kernel->erased_workspace_bytes(problem(), candidate.config);
  return {stream, {scratch_.get(), bytes}, prepared_, device_->threads()};
}

void Harness::run(const Candidate& candidate) {
  reserve(candidate);
  candidate.kernel->erased_run(problem(), cases_.front()->args(), candidate.config,
                               site_of(candidate, nullptr));
  device_->synchronize(nullptr);
}

double Harness::time_us(const Candidate& candidate, int repeats) {
  reserve(candidate);
  const LaunchSite site = site_of(candidate, nullptr);
  const ProblemRef what = problem();
  const auto launch = [&](void* stream, int repeat) {
    const Case& on = *cases_[(next_case_ + static_cast<std::size_t>(repeat)) % cases_.size()];
    candidate.kernel->erased_run(what, on.args(), candidate.config,
                                 {stream, site.workspace, site.prepared, site.threads});
  };
  const double us = device_->time_us(launch, repeats);
  next_case_ = (next_case_ + static_cast<std::size_t>(repeats)) % cases_.size();
  return us;
}

int copies_to_rotate(const OpInfo& op, ProblemRef problem, const Device& device) {
  const DeviceInfo& info = device.info();
  if (info.id.backend == cpu_device().info().id.backend || info.l2_bytes <= 0) return 1;
  const double bytes = std::max(op.bytes(problem), 1.0);
  const double copies = std::ceil(kCachesToFill * static_cast<double>(info.l2_bytes) / bytes);
  return static_cast<int>(std::clamp(copies, 1.0, static_cast<double>(kMostCopies)));
}

}  // namespace attune::tuning
