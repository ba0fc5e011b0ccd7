// attune: linear attention that tunes itself. This header is the whole library.
//
//   #include <attune/attune.hpp>
//
//   attune::ConstTensorView q(q_data, {batch, tokens, heads, 128});
//   auto [o, state] =
//       attune::ops::recurrent_attention(q, k, v, {.gk = gk, .want_final_state = true});
//
// The first call with a new problem tunes it (policy `tune`), remembers the result in the user's
// database, and every later call, in this process or the next, finds it there. See README.md; each
// header included here is a manual. framework.hpp is what tunes, without attune's ops.
#pragma once

#include <memory>

#include <attune/framework.hpp>
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>
#include <attune/ops/lightning_decode.hpp>
#include <attune/ops/recurrent_attention.hpp>
#include <attune/ops/recurrent_decode.hpp>

namespace attune {

/// Adds all ops, kernels and devices of this build.
void register_all(Registry& registry);

/// A context of one's own: other kernels, another database, another policy. It starts with what
/// register_all() adds; what is not given comes from the environment, as for default_context().
std::unique_ptr<Context> make_context(const ContextOptions& options = {});

}  // namespace attune
