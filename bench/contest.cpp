#include "contest.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <attune/core/error.hpp>

namespace attune::bench {
namespace {

constexpr double kSampleUs = 2000;
constexpr double kCachesToRotateOver = 4;  // as the tuner does
constexpr double kMostCopies = 64;

/// Enough for any of them.
Tensor workspace_for(const Copies& copies, std::span<const Contender> contenders) {
  std::size_t bytes = 0;
  for (const Contender& each : contenders) {
    bytes = std::max(
        bytes, each.choice.kernel->erased_workspace_bytes(copies.problem(), each.choice.config));
  }
  return {DType::kI64, {static_cast<std::int64_t>(bytes / 8 + 1)}, copies.device()};
}

}  // namespace

Copies::Copies(const OpInfo& op, ProblemRef problem, const Device& device) : device_(&device) {
  const bool on_host = device.info().id == cpu_device().info().id;
  const double cache = on_host ? 0 : static_cast<double>(device.info().l2_bytes);
  const double wanted = std::ceil(kCachesToRotateOver * cache / std::max(op.bytes(problem), 1.0));
  const int count = static_cast<int>(std::clamp(wanted, 1.0, kMostCopies));
  for (int i = 0; i < count; ++i) cases_.push_back(op.make_case(problem, device, 1));
  for (const auto& each : cases_) each->reset(std::byte{0});
}

double Copies::time_us(const Choice& choice, Tensor& workspace, int repeats) const {
  const auto launch = [&](void* stream, int repeat) {
    const Case& on = *cases_[static_cast<std::size_t>(repeat) % cases_.size()];
    choice.kernel->erased_run(
        on.problem(), on.args(), choice.config,
        {stream, {static_cast<std::byte*>(workspace.view().data), workspace.bytes()}});
  };
  return device_->time_us(launch, repeats) / repeats;
}

double Contender::median_us() const {
  std::vector<double> sorted = samples_us;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

void contest(const Copies& copies, std::span<Contender> contenders, int rounds) {
  Tensor workspace = workspace_for(copies, contenders);
  double fastest = 0;
  for (Contender& each : contenders) {
    const double us = copies.time_us(each.choice, workspace, 3);
    fastest = fastest == 0 ? us : std::min(fastest, us);
  }
  const int repeats = static_cast<int>(std::ceil(kSampleUs / fastest));
  const std::size_t count = contenders.size();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      Contender& each = contenders[(turn + static_cast<std::size_t>(round)) % count];
      each.samples_us.push_back(copies.time_us(each.choice, workspace, repeats));
    }
  }
}

std::vector<std::string> problems_of(const std::string& word) {
  if (!word.starts_with('@')) return {word};
  std::ifstream file(word.substr(1));
  if (!file) throw InvalidArgument("cannot read " + word.substr(1));
  std::vector<std::string> problems;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !line.starts_with('#')) problems.push_back(line);
  }
  return problems;
}

}  // namespace attune::bench
