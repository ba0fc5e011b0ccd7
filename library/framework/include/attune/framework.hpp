// The framework: what tunes, stores and selects, for ops of one's own. It has none itself; attune's
// are in attune.hpp.
//
//   attune::ContextOptions options;
//   options.register_kernels = {register_mine};  // adds an op and its kernels
//   const auto context = attune::make_framework_context(options);
//   const attune::Executor executor(*context);
//   attune::Plan plan = executor.plan<MyOp>(problem, {.device = &attune::cpu_device()});
//   plan.launch(args);
//
// core/op.hpp says what an op is, core/kernel.hpp what a kernel is. examples/02_custom_kernel is
// the smallest program with one of each.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/context.hpp>
#include <attune/core/executor.hpp>
#include <attune/core/kernel.hpp>
#include <attune/core/op.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/plan.hpp>
#include <attune/core/plugin.hpp>
#include <attune/core/version.hpp>
#include <attune/tuner/config_selector_chain.hpp>
#include <attune/tuner/objective.hpp>
#include <attune/tuner/policy.hpp>

namespace attune {

/// What is not given comes from the environment.
struct ContextOptions {
  std::vector<std::function<void(Registry&)>> register_kernels = {};  // called in this order
  std::vector<std::string> plugins = {};                              // files, loaded after those
  std::optional<Policy> policy = {};                                  // ATTUNE_POLICY, else tune
  std::optional<std::string> database = {};                           // ATTUNE_DB; "" for none
  std::optional<bool> read_only = {};  // stores nothing in the database; default false
  std::optional<Tuner::Settings> tuner = {};
  /// What tunings minimise, and under what rows are stored and found; null: the time.
  std::shared_ptr<const Objective> objective = {};
  /// The threads of the host that a call takes, at most; ATTUNE_THREADS, else as many as the
  /// process may use. Problems are tuned for a number of threads and found again with as many, by
  /// any process: one that is restricted to them, or a context with as many. Results have the same
  /// bits for any number.
  std::optional<int> max_threads = {};
  /// The program's own pool, which runs the loops of kernels in place of attune's threads
  /// (core/parallel_for.hpp). It is no part of a key: give a database of its own to what is tuned
  /// on a pool that is much slower or faster.
  HostPool parallel_for = {};
  /// Where problems are counted for which nothing is tuned; ATTUNE_RECORD, "" for nowhere.
  std::optional<std::string> record = {};
  /// Where first choices, tunings and faults are told of; ATTUNE_EVENTS, "" for nowhere.
  std::optional<std::string> events = {};
  /// A file or folder for the counters; ATTUNE_STATS, "" for none.
  std::optional<std::string> stats = {};
  /// How often to look for replaced databases; ATTUNE_RELOAD_SECONDS, 0 for never.
  std::optional<std::chrono::milliseconds> reload_every = {};
};

/// A context with what the options register, plugins (those of ATTUNE_PLUGINS when none are given)
/// and the host. make_context() of attune.hpp has attune's ops, kernels and devices besides.
std::unique_ptr<Context> make_framework_context(const ContextOptions& options = {});

/// The chain of a context made by attune, for pins, counters and databases. Throws InvalidArgument
/// for a context with another selector.
ConfigSelectorChain& chain_of(Context& context);

}  // namespace attune
