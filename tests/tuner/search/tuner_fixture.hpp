// A tuner with scripted kernels on the fake device.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/tuner/tuner.hpp>

#include "tuner/scaling_op.hpp"

namespace attune::test {

class TunerTest : public testing::Test {
 protected:
  TunerTest() {
    registry.add_op<Scaling>();
    settings.now = [this] { return world.now(); };
    settings.budget = std::chrono::seconds(10);
  }

  void add(Script script, int priority = 0, std::string_view platform = "test") {
    registry.add(scripted(world, std::move(script)), {.platform = platform, .priority = priority});
  }

  Tuner::Request request(const std::string& oracle = "") {
    Tuner::Request request;
    request.op = registry.find_op("scaling");
    request.problem = ProblemRef::of<Scaling>(problem);
    request.device = &device;
    for (const RegisteredKernel* entry : registry.kernels("scaling")) {
      if (entry->at.platform.view() != kReferencePlatform) request.kernels.push_back(entry);
    }
    if (!oracle.empty()) request.oracle = registry.find_kernel(oracle);
    return request;
  }

  TuneResult tune() { return tune(request()); }
  TuneResult tune(const Tuner::Request& with) { return Tuner(settings).tune(with); }

  static const Trial& trial_of(const TuneResult& result, const std::string& name) {
    for (const Trial& trial : result.trials) {
      if (text_of(*trial.candidate.kernel, trial.candidate.config) == name) return trial;
    }
    throw std::out_of_range("no trial of " + name);
  }
  static std::string winner_of(const TuneResult& result) {
    if (result.winner < 0) return "none";
    const Candidate& winner = result.trials[static_cast<std::size_t>(result.winner)].candidate;
    return text_of(*winner.kernel, winner.config);
  }
  Candidate candidate(const std::string& kernel, const std::string& config) const {
    const ErasedKernel* found = registry.find_kernel(kernel)->kernel.get();
    return {found, found->parse(parse_params(config))};
  }

  World world;
  FakeDevice device{world};
  Registry registry;
  Tuner::Settings settings;
  ScalingProblem problem;
};

}  // namespace attune::test
