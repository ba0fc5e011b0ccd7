#include <variant>

#include "handles.hpp"
#include "plan.hpp"
#include "status.hpp"
#include "workspace.hpp"

namespace attune::c {
namespace {

using ops::LightningDecodeOptions;
using ops::RecurrentDecodeOptions;

struct DecodeCall {
  std::string_view op;
  ConstTensorView q, k, v;
  TensorView state;
  std::variant<RecurrentDecodeOptions, LightningDecodeOptions> options;
};

/// The tokens of the last step, where any of their tensors is given.
std::optional<ops::CommittedTokens> committed_of(const attune_decode_args& args,
                                                 const TensorReader& read) {
  const bool given = args.committed_k != nullptr || args.committed_v != nullptr ||
                     args.committed_g != nullptr || args.committed_gk != nullptr ||
                     args.committed_gv != nullptr || args.committed_accepted != nullptr;
  if (!given) return std::nullopt;
  return ops::CommittedTokens{
      .k = read.required("committed.k", args.committed_k),
      .v = read.required("committed.v", args.committed_v),
      .g = read.optional_input("committed.g", args.committed_g),
      .gk = read.optional_input("committed.gk", args.committed_gk),
      .gv = read.optional_input("committed.gv", args.committed_gv),
      .accepted = read.required("committed.accepted", args.committed_accepted)};
}

DecodeCall call_of(const attune_decode_args& args, const ops::CallOptions& how) {
  const bool lightning = args.slopes != nullptr || args.num_layers != 0 || args.layer_idx != 0;
  const std::string_view op = lightning ? ops::LightningDecode::kName : ops::RecurrentDecode::kName;
  const TensorReader read(op);
  DecodeCall call{.op = op,
                  .q = read.required("q", args.q),
                  .k = read.required("k", args.k),
                  .v = read.required("v", args.v),
                  .state = read.required("state", args.state),
                  .options = {}};
  if (lightning) {
    refuse_with_slopes_or_layer(op, {{"g", args.g}, {"gk", args.gk}, {"gv", args.gv}});
    LightningDecodeOptions options;
    options.slopes = read.optional_input("slopes", args.slopes);
    options.layer_idx = layer_idx_of(args);
    options.num_layers = num_layers_of(args);
    call.options = options;
  } else {
    RecurrentDecodeOptions options;
    options.g = read.optional_input("g", args.g);
    options.gk = read.optional_input("gk", args.gk);
    options.gv = read.optional_input("gv", args.gv);
    call.options = options;
  }
  std::visit(
      [&](auto& options) {
        options.g_gamma = read.optional_input("g_gamma", args.g_gamma);
        options.slot_indices = read.optional_input("slot_indices", args.slot_indices);
        options.kept_slots = read.optional_input("kept_slots", args.kept_slots);
        options.accepted = read.optional_input("accepted", args.accepted);
        options.committed = committed_of(args, read);
        options.state_rounding = rounding_of(args);
        if (args.scale != nullptr) options.scale = *args.scale;
        options.call = how;
      },
      call.options);
  return call;
}

/// With o where it is given.
Plan<ops::RecurrentDecode> plan_decode(const DecodeCall& call, const attune_tensor* o) {
  const auto plan = [&](const auto&... out) {
    return std::visit(
        [&](const auto& options) {
          if constexpr (requires { options.slopes; }) {
            return ops::plan_lightning_decode(out..., call.q, call.k, call.v, call.state, options);
          } else {
            return ops::plan_recurrent_decode(out..., call.q, call.k, call.v, call.state, options);
          }
        },
        call.options);
  };
  return o != nullptr ? plan(TensorReader(call.op).required("o", o)) : plan();
}

ops::RecurrentDecodeArgs decode_args(const DecodeCall& call, const TensorView& o) {
  return std::visit(
      [&](const auto& options) {
        if constexpr (requires { options.slopes; }) {
          return ops::lightning_decode_args(o, call.q, call.k, call.v, call.state, options);
        } else {
          return ops::recurrent_decode_args(o, call.q, call.k, call.v, call.state, options);
        }
      },
      call.options);
}

void decode_into(const DecodeCall& call, const TensorView& o) {
  std::visit(
      [&](const auto& options) {
        if constexpr (requires { options.slopes; }) {
          ops::lightning_decode_into(o, call.q, call.k, call.v, call.state, options);
        } else {
          ops::recurrent_decode_into(o, call.q, call.k, call.v, call.state, options);
        }
      },
      call.options);
}

}  // namespace
}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

attune_status attune_decode(const attune_decode_args* given_args,
                            const attune_call* given_call) noexcept {
  return guarded([&] {
    const attune_decode_args args = read_struct("args", given_args, ATTUNE_STOCHASTIC_STATES);
    const attune_call how = read_call(given_call);
    CallersAllocator allocator(how);
    const DecodeCall call = call_of(args, options_with_memory(how, allocator));
    decode_into(call, TensorReader(call.op).required("o", args.o));
  });
}

attune_status attune_decode_plan(const attune_decode_args* given_args,
                                 const attune_call* given_call, attune_plan** out) noexcept {
  return guarded([&] {
    require("out", out);
    const attune_decode_args args = read_struct("args", given_args, ATTUNE_STOCHASTIC_STATES);
    const attune_call how = read_call(given_call);
    *out = make_plan(how, plan_decode(call_of(args, options_of(how)), args.o));
  });
}

attune_status attune_decode_launch(const attune_plan* plan, const attune_decode_args* given_args,
                                   void* stream, void* workspace, size_t workspace_bytes) noexcept {
  return guarded([&] {
    const auto& of = plan_of<attune::ops::RecurrentDecode>(plan);
    const attune_decode_args args = read_struct("args", given_args, ATTUNE_STOCHASTIC_STATES);
    const DecodeCall call = call_of(args, {});
    of.launch(decode_args(call, TensorReader(call.op).required("o", args.o)), stream,
              bytes_of(workspace, workspace_bytes));
  });
}

attune_status attune_minimax_slopes(int64_t heads, int64_t layer, int64_t layers,
                                    float* slopes) noexcept {
  return guarded([&] {
    const std::vector<float> values = attune::ops::minimax_slopes(heads, layer, layers);
    require("slopes", slopes);
    std::copy(values.begin(), values.end(), slopes);
  });
}
