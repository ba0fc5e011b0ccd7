// A case of any of attune's ops: its tensors, and the call over them in canonical form.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include <attune/core/case.hpp>

#include "attention_call.hpp"
#include "case_tensors.hpp"
#include "output_check.hpp"

namespace attune::ops {

template <class Op>
class OpCase : public Case {
 public:
  OpCase(CaseTensors tensors, const Lowered<Op>& call)
      : tensors_(std::move(tensors)), call_(call) {}

  ProblemRef problem() const final { return ProblemRef::of<Op>(call_.problem); }
  const void* args() const final { return &call_.args; }
  void reset(std::byte poison) final { tensors_.reset(poison); }
  std::vector<NamedTensor> outputs() const final { return tensors_.outputs(); }

  std::vector<OutputCheck> compare(const TensorMap& expected) const final {
    const Tolerances tolerances = tolerances_of(call_.problem.dtype, call_.problem.tf32);
    std::vector<OutputCheck> checks;
    for (const NamedTensor& output : outputs()) {
      const auto found = expected.find(output.name);
      checks.push_back(check_output(output.name, to_host(output.view, tensors_.device()),
                                    found == expected.end() ? nullptr : &found->second, tolerances,
                                    summand_rms(output, expected)));
    }
    return checks;
  }

 protected:
  /// What an output that is a gate's gradient sums up.
  virtual SummandRms summand_rms(const NamedTensor&, const TensorMap&) const { return {}; }

  const Lowered<Op>& call() const { return call_; }
  const Device& device() const { return tensors_.device(); }

 private:
  CaseTensors tensors_;
  Lowered<Op> call_;
};

}  // namespace attune::ops
