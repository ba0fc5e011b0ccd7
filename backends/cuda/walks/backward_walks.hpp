// The backward pass as walks: two sides, one after the other in the same workspace. The key side
// computes dq, dk and the gradients of gk, g and gamma; the value side computes dv and the gradient
// of gv. Each is a walk with the state and one back with its gradient (walk.hpp); on the value side
// the first is only needed for gv.
//
// Walkers are those of backward_workspace.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/walks/backward_workspace.hpp"
#include "cuda/walks/gate_gradients.hpp"
#include "cuda/walks/segment_fold.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// A state as the walks of the key side have it: with V's channels as rows.
template <class View>
View transposed(View view) {
  std::swap(view.k, view.v);
  return view;
}

template <class T, class Walker>
class BackwardWalks {
 public:
  BackwardWalks(const ops::RecurrentAttentionProblem& problem,
                const ops::RecurrentAttentionBackwardArgs& args, const Walker& walker,
                std::span<std::byte> workspace, cudaStream_t stream)
      : problem_(problem),
        args_(args),
        walker_(walker),
        gamma_terms_(reinterpret_cast<float*>(workspace.data())),
        side_memory_(gamma_terms_ + aligned_floats(gamma_floats(problem, walker))),
        stream_(stream) {}

  void key_side() const {
    const SideMemory memory(key_side_sizes(problem_, walker_), side_memory_);
    WalkParams dq = walk(problem_.V, problem_.K, memory);
    dq.read = rows(args_.d_o);
    dq.write = shared_rows(args_.v);
    dq.value = shared_rows(args_.k);
    dq.read_scale = scale();
    dq.initial = transposed(state_view(args_.initial_state));
    set_channel_gates(dq, args_.gv, args_.gk);
    run(dq, memory.first, &args_.dq, 1);

    WalkParams dk = walk_back(problem_.V, problem_.K, memory);
    dk.read = shared_rows(args_.v);
    dk.write = rows(args_.d_o);
    dk.value = rows(args_.q);
    dk.initial = transposed(state_view(args_.dfinal_state));
    set_channel_gates(dk, args_.gv, args_.gk);
    run(dk, memory.second, &args_.dk, heads_per_kv());

    if (memory.products != nullptr) {
      GateGradientParams gates = gate_gradients(dq, memory);
      gates.gained = {token_view(args_.q), 1, memory.first};
      gates.lost = {token_view(args_.k), heads_per_kv(), memory.second};
      gates.channel_gate = gate_view(args_.gk);
      gates.channels = token_view(args_.dgk);
      gates.shared = token_view(args_.dg);
      gates.gamma_terms = args_.dgamma ? gamma_terms_ : nullptr;
      launch_gate_gradients<T>(gates, stream_);
    }
    if (args_.dgamma) gamma_gradient(*args_.dgamma);  // of no sequence, too: [H] zeros
  }

  void value_side() const {
    const SideMemory memory(value_side_sizes(problem_, walker_), side_memory_);
    WalkParams o = walk(problem_.K, problem_.V, memory);
    if (memory.products != nullptr) {
      o.read = rows(args_.q);
      o.write = shared_rows(args_.k);
      o.value = shared_rows(args_.v);
      o.read_scale = scale();
      o.initial = state_view(args_.initial_state);
      set_channel_gates(o, args_.gk, args_.gv);
      run(o, memory.first, nullptr, 1);
    }

    WalkParams dv = walk_back(problem_.K, problem_.V, memory);
    dv.read = shared_rows(args_.k);
    dv.write = rows(args_.q);
    dv.value = rows(args_.d_o);
    dv.initial = state_view(args_.dfinal_state);
    dv.final = state_view(args_.dinitial_state);
    dv.decays_last = args_.dinitial_state.has_value();
    set_channel_gates(dv, args_.gk, args_.gv);
    run(dv, memory.second, &args_.dv, heads_per_kv());

    if (memory.products == nullptr) return;
    GateGradientParams gates = gate_gradients(o, memory);
    gates.gained = {token_view(args_.d_o), 1, memory.first};
    gates.lost = {token_view(args_.v), heads_per_kv(), memory.second};
    gates.channel_gate = gate_view(args_.gv);
    gates.channels = token_view(args_.dgv);
    launch_gate_gradients<T>(gates, stream_);
  }

 private:
  std::int64_t heads_per_kv() const { return problem_.H / problem_.Hkv; }
  float scale() const { return static_cast<float>(args_.scale); }

  WalkRows rows(const std::optional<ConstTensorView>& tensor) const {
    return tensor ? walk_rows(*tensor, 1) : WalkRows{};
  }
  WalkRows shared_rows(const ConstTensorView& tensor) const {
    return walk_rows(tensor, heads_per_kv());
  }

  static void set_channel_gates(WalkParams& params, const std::optional<ConstTensorView>& rows,
                                const std::optional<ConstTensorView>& columns) {
    params.row_gate = walk_gate(rows);
    params.column_gate = walk_gate(columns);
  }

  /// What all walks have alike; this one goes with the state.
  WalkParams walk(std::int64_t rows, std::int64_t columns, const SideMemory& memory) const {
    WalkParams params;
    params.sequences = sequences_view(args_.cu_seqlens, problem_.T);
    params.batches = problem_.B;
    params.sequence_count = problem_.sequences();
    params.heads = problem_.H;
    params.rows = rows;
    params.columns = columns;
    params.descending = problem_.reverse;
    params.shared_gate = gate_view(args_.g);
    params.gamma = decay_view(args_.gamma, problem_.H);
    if (memory.states != nullptr) {
      params.checkpoints = {.use = WalkCheckpoints::Use::kKeep,
                            .interval = walker_.interval,
                            .states = memory.states,
                            .products = memory.products,
                            .count = checkpoints_of(problem_, walker_)};
    }
    const bool checkpoints = memory.states != nullptr;
    params.segments =
        segment_plan(problem_, walker_, rows, columns, checkpoints).segments(memory.segments);
    params.segments.counts_from_end = checkpoints;
    return params;
  }

  /// This one goes back with the state's gradient.
  WalkParams walk_back(std::int64_t rows, std::int64_t columns, const SideMemory& memory) const {
    WalkParams params = walk(rows, columns, memory);
    params.descending = !params.descending;
    params.lags = true;
    params.write_scale = scale();
    params.segments.counts_from_end = false;
    if (memory.states != nullptr) params.checkpoints.use = WalkCheckpoints::Use::kMeet;
    return params;
  }

  /// Walks, and writes `out` if there is one: at once where each of its rows is read by one block.
  void run(WalkParams& params, float* planes, const TensorView* out,
           std::int64_t heads_per_row) const {
    const std::int64_t blocks = walker_.row_blocks(params.rows);
    const bool at_once = blocks == 1 && heads_per_row == 1;
    params.planes = planes;
    if (at_once && out != nullptr) {
      params.out = token_view(*out);
      params.out_vectors = moves_in_quads(*out);
    }
    walk_in_segments<T>(params, stream_,
                        [&](const WalkParams& walk) { walker_.template launch<T>(walk, stream_); });
    if (at_once || out == nullptr) return;
    launch_plane_sums<T>({.planes = planes,
                          .plane_count = blocks,
                          .batches = problem_.B,
                          .tokens = problem_.T,
                          .heads = problem_.H,
                          .columns = params.columns,
                          .group = heads_per_row,
                          .out = token_view(*out)},
                         stream_);
  }

  /// Of the channels of the columns of `first`, the walk with the state.
  GateGradientParams gate_gradients(const WalkParams& first, const SideMemory& memory) const {
    GateGradientParams params;
    params.sequences = first.sequences;
    params.batches = problem_.B;
    params.sequence_count = first.sequence_count;
    params.heads = problem_.H;
    params.columns = first.columns;
    params.descending = first.descending;
    params.has_initial = args_.initial_state.has_value();
    params.plane_count = walker_.row_blocks(first.rows);
    params.products = memory.products;
    params.product_planes = walker_.product_planes(first.rows);
    params.checkpoints = first.checkpoints.count;
    params.interval = walker_.interval;
    params.shared_gate = gate_view(args_.g);
    params.gamma = first.gamma;
    return params;
  }

  void gamma_gradient(const TensorView& out) const {
    using Source = ops::ConstantDecay::Source;
    launch_gamma_gradient({.sequences = sequences_view(args_.cu_seqlens, problem_.T),
                           .sequence_count = problem_.sequences(),
                           .heads = problem_.H,
                           .terms = gamma_terms_,
                           .checkpoints = checkpoints_of(problem_, walker_),
                           .interval = walker_.interval,
                           .out = static_cast<float*>(out.data),
                           .sequence_stride = out.stride(0),
                           .head_stride = out.stride(1),
                           .sign = args_.gamma.source == Source::kSlopes ? -1.0F : 1.0F},
                          stream_);
  }

  const ops::RecurrentAttentionProblem& problem_;
  const ops::RecurrentAttentionBackwardArgs& args_;
  Walker walker_;
  float* gamma_terms_;  // [checkpoints, H]
  float* side_memory_;
  cudaStream_t stream_;
};

}  // namespace attune::cuda
