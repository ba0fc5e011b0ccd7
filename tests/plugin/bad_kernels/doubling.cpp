// The op's case, on any device.
#include "doubling.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

namespace doubling {
namespace {

using attune::Tensor;

/// As long as large outputs take the host to compare.
void wait_as_long_as_asked() {
  const char* milliseconds = std::getenv("DOUBLING_COMPARE_MS");
  if (milliseconds != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(milliseconds)));
  }
}

class DoublingCase final : public attune::Case {
 public:
  DoublingCase(const DoublingProblem& problem, const attune::Device& device, std::uint64_t seed)
      : problem_(problem),
        device_(&device),
        x_(attune::DType::kF32, {problem.n}, device),
        y_(attune::DType::kF32, {problem.n}, device) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> uniform(1, 2);
    std::vector<float> x(static_cast<std::size_t>(problem.n));
    for (float& value : x) value = uniform(random);
    device.copy_to_device(x_.view().data, x.data(), x_.bytes(), nullptr);
    device.synchronize(nullptr);
    args_ = {static_cast<const float*>(x_.view().data), static_cast<float*>(y_.view().data)};
  }

  attune::ProblemRef problem() const override { return attune::ProblemRef::of<Doubling>(problem_); }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override { device_->fill(args_.y, poison, y_.bytes(), nullptr); }
  std::vector<attune::NamedTensor> outputs() const override { return {{"y", y_.view()}}; }

  std::vector<attune::OutputCheck> compare(const attune::TensorMap& expected) const override {
    attune::OutputCheck check{.name = "y", .tolerance = 1e-5};
    const std::vector<double> got = attune::to_doubles(attune::to_host(y_.view(), *device_).view());
    const auto bad = std::ranges::find_if(got, [](double value) { return !std::isfinite(value); });
    if (bad != got.end()) check.reason = attune::str("not finite at [", bad - got.begin(), "]");
    if (const auto found = expected.find("y"); found != expected.end()) {
      if (problem_.n > kReducedN) wait_as_long_as_asked();
      check.error = attune::relative_rms_error(got, attune::to_doubles(found->second.view()));
    }
    check.passed = check.reason.empty() && check.error <= check.tolerance;
    return {check};
  }

 private:
  DoublingProblem problem_;
  const attune::Device* device_;
  Tensor x_, y_;
  DoublingArgs args_;
};

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
