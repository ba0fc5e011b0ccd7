#include <optional>
#include <variant>

#include "handles.hpp"
#include "plan.hpp"
#include "status.hpp"
#include "workspace.hpp"

namespace attune::c {
namespace {

using ops::LightningAttentionOptions;
using ops::RecurrentAttentionOptions;

bool is_lightning(const attune_attention_args& args) {
  return args.slopes != nullptr || args.num_layers != 0 || args.layer_idx != 0;
}

std::string_view op_name(const attune_attention_args& args, bool backward) {
  if (is_lightning(args)) {
    return backward ? ops::LightningAttentionBackward::kName : ops::LightningAttention::kName;
  }
  return backward ? ops::RecurrentAttentionBackward::kName : ops::RecurrentAttention::kName;
}

/// The arguments of a call of either pass, as one of the two ops has them.
struct AttentionCall {
  std::string_view op;
  ConstTensorView q, k, v;
  std::variant<RecurrentAttentionOptions, LightningAttentionOptions> options;

  /// Calls `run` with the op's options.
  template <class Run>
  decltype(auto) visit(Run&& run) const {
    return std::visit(std::forward<Run>(run), options);
  }
};

template <class Options>
Options options_of_both(const attune_attention_args& args, const TensorReader& read,
                        const ops::CallOptions& call) {
  Options options;
  options.g_gamma = read.optional_input("g_gamma", args.g_gamma);
  options.initial_state = read.optional_input("initial_state", args.initial_state);
  options.cu_seqlens = read.optional_input("cu_seqlens", args.cu_seqlens);
  options.cu_seqlens_host = read.optional_input("cu_seqlens_host", args.cu_seqlens_host);
  if (args.scale != nullptr) options.scale = *args.scale;
  options.states = read.optional("states", args.states);
  options.initial_slots = read.optional_input("initial_slots", args.initial_slots);
  options.final_slots = read.optional_input("final_slots", args.final_slots);
  options.snapshot_slots = read.optional_input("snapshot_slots", args.snapshot_slots);
  options.snapshot_every = args.snapshot_every;
  options.state_rounding = rounding_of(args);
  options.reverse = (args.flags & ATTUNE_REVERSE) != 0;
  options.want_final_state = args.final_state != nullptr;
  options.call = call;
  return options;
}

AttentionCall call_of(const attune_attention_args& args, bool backward,
                      const ops::CallOptions& options) {
  const std::string_view op = op_name(args, backward);
  const TensorReader read(op);
  AttentionCall call{.op = op,
                     .q = read.required("q", args.q),
                     .k = read.required("k", args.k),
                     .v = read.required("v", args.v),
                     .options = {}};
  if (is_lightning(args)) {
    refuse_with_slopes_or_layer(op, {{"g", args.g}, {"gk", args.gk}, {"gv", args.gv}});
    auto lightning = options_of_both<LightningAttentionOptions>(args, read, options);
    lightning.slopes = read.optional_input("slopes", args.slopes);
    lightning.layer_idx = layer_idx_of(args);
    lightning.num_layers = num_layers_of(args);
    call.options = lightning;
  } else {
    auto recurrent = options_of_both<RecurrentAttentionOptions>(args, read, options);
    recurrent.g = read.optional_input("g", args.g);
    recurrent.gk = read.optional_input("gk", args.gk);
    recurrent.gv = read.optional_input("gv", args.gv);
    call.options = recurrent;
  }
  return call;
}

ops::RecurrentAttentionOutputs outputs_of(std::string_view op, const attune_attention_args& args) {
  const TensorReader read(op);
  return {.o = read.required("o", args.o),
          .final_state = read.optional("final_state", args.final_state)};
}

ops::RecurrentAttentionOutputGradients output_gradients_of(std::string_view op,
                                                           const attune_attention_grads& grads) {
  const TensorReader read(op);
  return {.d_o = read.optional_input("d_o", grads.d_o),
          .dfinal_state = read.optional_input("dfinal_state", grads.dfinal_state)};
}

// Where gradients go, by the options of the op that is called.

ops::RecurrentAttentionGradientOutputs gradients_of(const RecurrentAttentionOptions&,
                                                    std::string_view op,
                                                    const attune_attention_grads& grads) {
  if (grads.dslopes != nullptr) {
    throw InvalidArgument(str(op, ": dslopes: given without slopes"));
  }
  const TensorReader read(op);
  return {.dq = read.required("dq", grads.dq),
          .dk = read.required("dk", grads.dk),
          .dv = read.required("dv", grads.dv),
          .dg = read.optional("dg", grads.dg),
          .dg_gamma = read.optional("dg_gamma", grads.dg_gamma),
          .dgk = read.optional("dgk", grads.dgk),
          .dgv = read.optional("dgv", grads.dgv),
          .dinitial_state = read.optional("dinitial_state", grads.dinitial_state)};
}

ops::LightningAttentionGradientOutputs gradients_of(const LightningAttentionOptions&,
                                                    std::string_view op,
                                                    const attune_attention_grads& grads) {
  refuse_with_slopes_or_layer(op, {{"dg", grads.dg}, {"dgk", grads.dgk}, {"dgv", grads.dgv}});
  const TensorReader read(op);
  return {.dq = read.required("dq", grads.dq),
          .dk = read.required("dk", grads.dk),
          .dv = read.required("dv", grads.dv),
          .dslopes = read.optional("dslopes", grads.dslopes),
          .dg_gamma = read.optional("dg_gamma", grads.dg_gamma),
          .dinitial_state = read.optional("dinitial_state", grads.dinitial_state)};
}

// The forms of both ops under one name each, told apart by their options.

void forward_into(const AttentionCall& call, const attune_attention_args& args) {
  const auto out = outputs_of(call.op, args);
  call.visit([&](const auto& options) {
    if constexpr (requires { options.slopes; }) {
      ops::lightning_attention_into(out, call.q, call.k, call.v, options);
    } else {
      ops::recurrent_attention_into(out, call.q, call.k, call.v, options);
    }
  });
}

/// With the outputs where they are given.
Plan<ops::RecurrentAttention> plan_forward(const AttentionCall& call,
                                           const attune_attention_args& args) {
  const auto plan = [&](const auto&... out) {
    return call.visit([&](const auto& options) {
      if constexpr (requires { options.slopes; }) {
        return ops::plan_lightning_attention(out..., call.q, call.k, call.v, options);
      } else {
        return ops::plan_recurrent_attention(out..., call.q, call.k, call.v, options);
      }
    });
  };
  return args.o != nullptr ? plan(outputs_of(call.op, args)) : plan();
}

ops::RecurrentAttentionArgs forward_args(const AttentionCall& call,
                                         const ops::RecurrentAttentionOutputs& out) {
  return call.visit([&](const auto& options) {
    if constexpr (requires { options.slopes; }) {
      return ops::lightning_attention_args(out, call.q, call.k, call.v, options);
    } else {
      return ops::recurrent_attention_args(out, call.q, call.k, call.v, options);
    }
  });
}

/// With the gradients that it writes where dq is given.
Plan<ops::RecurrentAttentionBackward> plan_backward(const AttentionCall& call,
                                                    const attune_attention_grads& grads) {
  const auto gradients = output_gradients_of(call.op, grads);
  return call.visit([&](const auto& options) {
    const auto plan = [&](const auto&... out) {
      if constexpr (requires { options.slopes; }) {
        return ops::plan_lightning_attention_backward(out..., call.q, call.k, call.v, gradients,
                                                      options);
      } else {
        return ops::plan_recurrent_attention_backward(out..., call.q, call.k, call.v, gradients,
                                                      options);
      }
    };
    return grads.dq != nullptr ? plan(gradients_of(options, call.op, grads)) : plan();
  });
}

ops::RecurrentAttentionBackwardArgs backward_args(const AttentionCall& call,
                                                  const attune_attention_grads& grads) {
  const auto gradients = output_gradients_of(call.op, grads);
  return call.visit([&](const auto& options) {
    const auto out = gradients_of(options, call.op, grads);
    if constexpr (requires { options.slopes; }) {
      return ops::lightning_attention_backward_args(out, call.q, call.k, call.v, gradients,
                                                    options);
    } else {
      return ops::recurrent_attention_backward_args(out, call.q, call.k, call.v, gradients,
                                                    options);
    }
  });
}

void backward_into(const AttentionCall& call, const attune_attention_grads& grads) {
  const auto gradients = output_gradients_of(call.op, grads);
  call.visit([&](const auto& options) {
    const auto out = gradients_of(options, call.op, grads);
    if constexpr (requires { options.slopes; }) {
      ops::lightning_attention_backward_into(out, call.q, call.k, call.v, gradients, options);
    } else {
      ops::recurrent_attention_backward_into(out, call.q, call.k, call.v, gradients, options);
    }
  });
}

attune_attention_args read_args(const attune_attention_args* given) {
  return read_struct("args", given, ATTUNE_REVERSE | ATTUNE_STOCHASTIC_STATES);
}

/// The arguments of a backward call: what a forward one would write is not looked at.
attune_attention_args read_backward_args(const attune_attention_args* given) {
  attune_attention_args args = read_args(given);
  args.o = nullptr;
  args.final_state = nullptr;
  return args;
}

/// Launches look nothing up, so they need no context.
const ops::CallOptions kNoOptions{};

}  // namespace
}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

attune_status attune_attention(const attune_attention_args* given_args,
                               const attune_call* given_call) noexcept {
  return guarded([&] {
    const attune_attention_args args = read_args(given_args);
    const attune_call how = read_call(given_call);
    CallersAllocator allocator(how);
    forward_into(call_of(args, false, options_with_memory(how, allocator)), args);
  });
}

attune_status attune_attention_backward(const attune_attention_args* given_args,
                                        const attune_attention_grads* given_grads,
                                        const attune_call* given_call) noexcept {
  return guarded([&] {
    const attune_attention_args args = read_backward_args(given_args);
    const attune_attention_grads grads = read_struct("grads", given_grads);
    const attune_call how = read_call(given_call);
    CallersAllocator allocator(how);
    backward_into(call_of(args, true, options_with_memory(how, allocator)), grads);
  });
}

attune_status attune_attention_plan(const attune_attention_args* given_args,
                                    const attune_call* given_call, attune_plan** out) noexcept {
  return guarded([&] {
    require("out", out);
    const attune_attention_args args = read_args(given_args);
    const attune_call how = read_call(given_call);
    *out = make_plan(how, plan_forward(call_of(args, false, options_of(how)), args));
  });
}

attune_status attune_attention_backward_plan(const attune_attention_args* given_args,
                                             const attune_attention_grads* given_grads,
                                             const attune_call* given_call,
                                             attune_plan** out) noexcept {
  return guarded([&] {
    require("out", out);
    const attune_attention_args args = read_backward_args(given_args);
    const attune_attention_grads grads = read_struct("grads", given_grads);
    const attune_call how = read_call(given_call);
    *out = make_plan(how, plan_backward(call_of(args, true, options_of(how)), grads));
  });
}

attune_status attune_attention_launch(const attune_plan* plan,
                                      const attune_attention_args* given_args, void* stream,
                                      void* workspace, size_t workspace_bytes) noexcept {
  return guarded([&] {
    const auto& of = plan_of<attune::ops::RecurrentAttention>(plan);
    const attune_attention_args args = read_args(given_args);
    require_direction(of, args.flags);
    const AttentionCall call = call_of(args, false, kNoOptions);
    of.launch(forward_args(call, outputs_of(call.op, args)), stream,
              bytes_of(workspace, workspace_bytes));
  });
}

attune_status attune_attention_backward_launch(const attune_plan* plan,
                                               const attune_attention_args* given_args,
                                               const attune_attention_grads* given_grads,
                                               void* stream, void* workspace,
                                               size_t workspace_bytes) noexcept {
  return guarded([&] {
    const auto& of = plan_of<attune::ops::RecurrentAttentionBackward>(plan);
    const attune_attention_args args = read_backward_args(given_args);
    const attune_attention_grads grads = read_struct("grads", given_grads);
    require_direction(of, args.flags);
    const AttentionCall call = call_of(args, true, kNoOptions);
    of.launch(backward_args(call, grads), stream, bytes_of(workspace, workspace_bytes));
  });
}
