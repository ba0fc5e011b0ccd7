// The executor: one call from problem to result. What an op's public functions are made of.
//
//   prepare (Op::prepare, when it has one) -> key -> select -> workspace -> run
#pragma once

#include <memory>

#include <attune/core/context.hpp>
#include <attune/core/plan.hpp>

namespace attune {

class Executor {
 public:
  explicit Executor(Context& context) : context_(&context) {}

  /// Selects and runs on the request's device and stream. Scratch memory is allocated in the order
  /// of the stream.
  template <class Op>
  Choice run(typename Op::Problem problem, typename Op::Args args, const Request& request) const {
    if constexpr (requires { Op::prepare(problem, args); }) Op::prepare(problem, args);
    const Choice choice = context_->select<Op>(problem, request);
    run_selected(ProblemRef::of<Op>(problem), &args, choice, request);
    return choice;
  }

  /// Selects only.
  template <class Op>
  Choice choose(typename Op::Problem problem, const Request& request) const {
    return context_->select<Op>(problem, request);
  }

  /// Selects once, for many launches.
  template <class Op>
  Plan<Op> plan(const typename Op::Problem& problem, const Request& request) const {
    return Plan<Op>(problem, context_->select<Op>(problem, request), *request.device);
  }

  /// Runs a case: what the command line and the tests do with an op that they know only by name.
  Choice run(const Case& on, const Request& request) const;

  /// Runs a choice, with its own scratch memory.
  static void run_choice(ProblemRef problem, const void* args, const Choice& choice,
                         const Device& device, void* stream);

 private:
  /// run_choice() for the request's device; what it throws is an event first.
  void run_selected(ProblemRef problem, const void* args, const Choice& choice,
                    const Request& request) const;

  Context* context_;
};

}  // namespace attune
