// The kernels of this backend: a factory each, and the list of all.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

// recurrent_attention, from the most special to the one that takes every problem.

/// "cuda.chunk_wgmma": the gates g and gamma, f16 and bf16, on sm_90a.
std::unique_ptr<const ErasedKernel> make_chunk_wgmma();
/// "cuda.parallel_wgmma": the same, of sequences of a few chunks.
std::unique_ptr<const ErasedKernel> make_parallel_wgmma();
/// "cuda.chunk_mma": the gates g and gamma, on every GPU from sm_80 on; f32, which may have gk
/// and gv besides, as pairs of bf16.
std::unique_ptr<const ErasedKernel> make_chunk_mma();
/// "cuda.chunk_gla": gk, with or without g and gamma, bf16, on sm_90a: blocks of a head make operands
/// for one another.
std::unique_ptr<const ErasedKernel> make_chunk_gla();
/// "cuda.gla_wgmma": gk or gv, with or without g and gamma, f16 and bf16, on sm_90a.
std::unique_ptr<const ErasedKernel> make_gla_wgmma();
/// "cuda.gla_mma": gk, gv or both, with or without g and gamma, f16 and bf16, from sm_80 on.
std::unique_ptr<const ErasedKernel> make_gla_mma();
/// "cuda.warp_mma": K and V up to 32, all gates and types, from sm_80 on.
std::unique_ptr<const ErasedKernel> make_warp_mma();
/// "cuda.chunk_tf32": every problem whose sequences are not very short, from sm_80 on; f32 as three
/// products of TF32, or one.
std::unique_ptr<const ErasedKernel> make_chunk_tf32();
/// "cuda.parallel": sequences of less than 24 tokens that start from no state and leave none:
/// scores of all pairs of tokens.
std::unique_ptr<const ErasedKernel> make_parallel();
/// "cuda.window": sequences of less than 32 tokens, a window of up to 16 at once.
std::unique_ptr<const ErasedKernel> make_window();
/// "cuda.fused_recurrent": token by token, every problem there is; IEEE fp32 for f32.
std::unique_ptr<const ErasedKernel> make_fused_recurrent();

// The same backward.

/// "cuda.chunk_wgmma.backward": a decay per head, f16 and bf16, on sm_90a.
std::unique_ptr<const ErasedKernel> make_chunk_backward();
/// "cuda.gla.backward": a decay for every channel, f16 and bf16, on sm_90a.
std::unique_ptr<const ErasedKernel> make_gla_backward();
/// "cuda.chunk_mma.backward": f32 as pairs of bf16, from sm_80 on; 16 bits by copies in f32.
std::unique_ptr<const ErasedKernel> make_chunk_mma_backward();
/// "cuda.chunk_tf32.backward": every problem whose sequences are not very short, from sm_80 on.
std::unique_ptr<const ErasedKernel> make_chunk_tf32_backward();
/// "cuda.parallel.backward": sequences as "cuda.parallel".
std::unique_ptr<const ErasedKernel> make_parallel_backward();
/// "cuda.window.backward": sequences as "cuda.window".
std::unique_ptr<const ErasedKernel> make_window_backward();
/// "cuda.fused_recurrent.backward": token by token, every problem there is.
std::unique_ptr<const ErasedKernel> make_fused_recurrent_backward();

// state_summary, by walks of recurrent_attention's kernels, and state_fold.

/// "cuda.chunk_wgmma.summary": the gates g and gamma, f16 and bf16, on sm_90a.
std::unique_ptr<const ErasedKernel> make_chunk_wgmma_summary();
/// "cuda.chunk_tf32.summary": every problem whose sequences are not very short, from sm_80 on.
std::unique_ptr<const ErasedKernel> make_chunk_tf32_summary();
/// "cuda.fused_recurrent.summary": token by token, every problem there is.
std::unique_ptr<const ErasedKernel> make_fused_recurrent_summary();
/// "cuda.state_fold": every problem there is.
std::unique_ptr<const ErasedKernel> make_state_fold();

/// "cuda.decode": recurrent_decode, every problem there is.
std::unique_ptr<const ErasedKernel> make_decode();

/// A kernel and its rank: of those that take a problem, the highest give the default, those that say
/// what they expect before others, which come in this order.
struct ListedKernel {
  std::unique_ptr<const ErasedKernel> (*make)();
  int priority;
};
// clang-format off
inline constexpr ListedKernel kKernels[] = {
    {make_chunk_wgmma, 30},
    {make_parallel_wgmma, 30},
    {make_gla_wgmma, 30},
    {make_chunk_gla, 30},
    {make_chunk_mma, 30},
    {make_gla_mma, 30},
    {make_warp_mma, 30},
    {make_chunk_tf32, 30},
    {make_parallel, 30},
    {make_window, 30},
    {make_fused_recurrent, 30},

    {make_chunk_backward, 30},
    {make_gla_backward, 30},
    {make_chunk_mma_backward, 30},
    {make_chunk_tf32_backward, 30},
    {make_parallel_backward, 30},
    {make_window_backward, 30},
    {make_fused_recurrent_backward, 10},

    {make_chunk_wgmma_summary, 20},
    {make_chunk_tf32_summary, 15},
    {make_fused_recurrent_summary, 10},
    {make_state_fold, 10},

    {make_decode, 10},
};
// clang-format on

}  // namespace attune::cuda
