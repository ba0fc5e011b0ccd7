// attune: linear attention that tunes itself. This header is the whole library.
//
//   #include <attune/attune.hpp>
//
//   attune::ConstTensorView q(q_data, {batch, tokens, heads, 128});
//   auto [o, state] = attune::ops::recurrent_attention(q, k, v, {.gk = gk, .want_final_state =
//   true});
//
// The first call with a new problem tunes it (policy `tune`), remembers the result in the user's
// database, and every later call, in this process or the next, finds it there. See README.md; each
// header included here is a manual.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/context.hpp>
#include <attune/core/executor.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/plan.hpp>
#include <attune/core/plugin.hpp>
#include <attune/core/version.hpp>
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>
#include <attune/ops/lightning_decode.hpp>
#include <attune/ops/recurrent_attention.hpp>
#include <attune/ops/recurrent_decode.hpp>
#include <attune/tuner/config_selector_chain.hpp>
#include <attune/tuner/policy.hpp>

namespace attune {

/// Adds all ops, kernels and devices of this build.
void register_all(Registry& registry);

/// What is not given comes from the environment, as for default_context().
struct ContextOptions {
  std::vector<std::function<void(Registry&)>> register_kernels = {};  // after the built-in ones
  std::vector<std::string> plugins = {};                              // files, loaded after those
  std::optional<Policy> policy = {};                                  // ATTUNE_POLICY, else tune
  std::optional<std::string> database = {};                           // ATTUNE_DB; "" for none
  std::optional<bool> read_only = {};  // stores nothing in the database; default false
  std::optional<Tuner::Settings> tuner = {};
  /// Where problems are counted for which nothing is tuned; ATTUNE_RECORD, "" for nowhere.
  std::optional<std::string> record = {};
};

/// A context of one's own: other kernels, another database, another policy.
std::unique_ptr<Context> make_context(const ContextOptions& options = {});

/// The chain of a context made by attune, for pins, counters and databases. Throws InvalidArgument
/// for a context with another selector.
ConfigSelectorChain& chain_of(Context& context);

}  // namespace attune
