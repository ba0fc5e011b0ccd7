// The chunked backward kernel on tile registers, for decays that all channels share (g, gamma),
// those of each channel of K (gk, with or without g), or none.
//
// Each gradient is a linear recurrence of its own, which recurrence.inl.hpp runs. With
// o_t = scale q_t S_t, S the state, D the gradient of the loss with respect to it, and a_t the
// decay of token t,
//
//   dq_t = scale do_t S_t'    S_t = a_t S_{t-1} + k_t' v_t          with the sequence
//   dk_t = v_t D_t'           D_t = a_{t+1} D_{t+1} + scale q_t' do_t   against it
//   dv_t = k_t D_t
//
// A product reads its state by the channels it sums over, so S and D are kept transposed, and D is
// rounded both ways.
//
// Two sweeps over the chunks of a head. The first makes dq; where there is a gate it also leaves
// the sums q_t . dq_t, and S every few chunks. The second makes dk and dv, and from k_t . dk_t and
// <S, D> the gradients of the gates (cpu/simd/chunk/backward/gate_gradients.inl.hpp). All of these
// are fp32 sums taken before anything is rounded.
#pragma once

#include "channel_sweep_against.inl.hpp"
#include "channel_sweep_with.inl.hpp"
#include "sweep_against.inl.hpp"
#include "sweep_with.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

inline void run_tiles_backward(const Params& p, std::int64_t first, std::int64_t last,
                               float* scratch) {
  const std::int64_t row =
      p.forward.key_dim > p.forward.value_dim ? p.forward.key_dim : p.forward.value_dim;
  zero_floats(scratch + p.scratch.zeros, round_up_to_lanes(row));
  zero_floats(scratch + p.scratch.partial, p.chunk * kLanes);
  if (p.forward.gk.data) {
    zero_floats(scratch + p.scratch.gate_rows, p.scratch.q_rows - p.scratch.gate_rows);
  }
  const std::int64_t heads_per_kv = p.forward.heads / p.forward.kv_heads;
  configure_tiles();
  const char* lines[FetchList::kMaxLines];
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t sequence = index / p.forward.kv_heads;
    const std::int64_t first_head = index % p.forward.kv_heads * heads_per_kv;
    for (std::int64_t head = first_head; head < first_head + heads_per_kv; ++head) {
      if (p.forward.gk.data) {
        const ChannelBackward task = channel_backward(p, sequence, head, scratch);
        sweep_channels_with(task, lines);
        sweep_channels_against(task, lines);
      } else {
        BackwardTiles task = backward_tiles(p, sequence, head, scratch);
        sweep_with(task, lines);
        sweep_against(task, lines);
      }
    }
  }
  release_tiles();
  if (p.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_tiles_backward}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
