// The kernels that take a call, forced one by one: the call is made as callers make it, in a
// context whose choices are these.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "support/campaign.hpp"
#include "support/drawn_call.hpp"

namespace attune::test {

/// A kernel and config, and the scratch memory that they need.
struct Forced {
  const ErasedKernel* kernel = nullptr;
  ConfigBlob config;
  std::size_t workspace_bytes = 0;

  friend std::ostream& operator<<(std::ostream& out, const Forced& forced);
};

/// Takes what it is told to; at first it looks what there is: some configs of all kernels that take
/// the problem.
class ForcingSelector final : public ConfigSelector {
 public:
  explicit ForcingSelector(const Registry& registry) : registry_(registry) {}

  Choice select(const SelectionKey&, ProblemRef problem, const Request& request) override;
  Decision explain(ProblemRef, const Request&) override { return {}; }
  void forget(ProblemRef, const Request&) override {}
  Choice retune(ProblemRef problem, const Request& request) override {
    return select({}, problem, request);
  }

  Draw* draw = nullptr;          // which configs
  const Forced* next = nullptr;  // what is chosen; nothing yet: look what there is
  std::vector<Forced> found;
  std::string problem_text;

 private:
  void look_at(const RegisteredKernel& entry, ProblemRef problem, const Device& device);

  const Registry& registry_;
};

/// A context with all kernels and that selector.
Context& forcing_context();
ForcingSelector& forcing_selector();

/// Scratch memory of exactly the bytes asked for, full of NaN.
class Scratch {
 public:
  Scratch(std::size_t bytes, const Device& device);
  ~Scratch() { device_->deallocate(memory_, nullptr); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::span<std::byte> span() const { return {memory_, bytes_}; }

 private:
  std::size_t bytes_;
  const Device* device_;
  std::byte* memory_;
};

/// Launches a plan in scratch memory of its own.
template <class Op>
void launch(const Plan<Op>& plan, const typename Op::Args& args) {
  const Scratch scratch(plan.workspace_bytes(), plan.device());
  plan.launch(args, nullptr, scratch.span());
  plan.device().synchronize(nullptr);
}

/// A call that can be made again and again.
class RepeatedCall {
 public:
  virtual ~RepeatedCall() = default;
  virtual DrawnCall& drawn() = 0;
  /// Of which some may be null.
  virtual std::vector<DrawnTensor*> outputs() = 0;
  virtual void restore(std::byte poison) = 0;
  virtual void run() = 0;
  virtual void launch_plan() = 0;
  /// Holds what is in the outputs against what is expected.
  virtual void check(const std::vector<Values>& outputs) = 0;
};

/// Makes the call with each kernel, twice at once and by a plan; expects the same bits each time,
/// nothing written beside outputs, and what check() says.
void force_each_kernel(RepeatedCall& call, const Device& device);

/// cpu:0 or gpu:0, with the numbers of the calls to draw.
using DrawnCase = std::tuple<const char*, std::uint64_t>;
std::string drawn_case_name(const testing::TestParamInfo<DrawnCase>& test);

/// Each seed by itself, on the host and on a GPU where there is one.
class DrawnCalls : public testing::TestWithParam<DrawnCase> {
 protected:
  void SetUp() override;
  const Device* device_ = nullptr;
  std::uint64_t seed_ = std::get<1>(GetParam());
};

/// A few dozen in CI, thousands by hand.
inline auto drawn_cases() {
  const std::uint64_t first = campaign_seed();
  const auto count = static_cast<std::uint64_t>(campaign_length(30, 700));
  return testing::Combine(testing::Values("cpu", "gpu"), testing::Range(first, first + count));
}

}  // namespace attune::test
