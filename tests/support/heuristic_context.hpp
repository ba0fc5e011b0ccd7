// A context of all kernels of this build in which nothing is looked up or tuned.
#pragma once

#include <attune/attune.hpp>

namespace attune::test {

inline Context& heuristic_context() {
  static const std::unique_ptr<Context> context =
      make_context({.policy = Policy::kHeuristic, .database = ""});
  return *context;
}

}  // namespace attune::test
