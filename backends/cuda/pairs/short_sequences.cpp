#include "cuda/pairs/short_sequences.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/pairs/gradients.hpp"
#include "cuda/runtime/dispatch.hpp"

namespace attune::cuda::pairs {
namespace {

constexpr int kWarps = 4;  // of a block

}  // namespace

/// Of 85 problems of an H100 whose sequences have 1 to 60 tokens on average, walks that leave out short
/// ones take 0.05 to 0.9 of the time in nearly all where this does, and up to 2.8 elsewhere. Of 35 of an
/// H200 in f32, of heads over 128 channels and up to 32 tokens on average, they take 0.78, 0.26 to 1.64;
/// in 16 bits 0.28 to 2.3, by how lengths differ. In f32 one walk has all slices of packed sequences' K.
std::int64_t most_left_out(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kManyWalks = 1000;
  constexpr std::int64_t kNarrow = 128;
  const bool is_wide_f32 = problem.dtype == DType::kF32 && std::min(problem.K, problem.V) > kNarrow;
  const bool are_many = problem.N * forward_blocks(problem) >= kManyWalks;
  return most_left_out(problem, is_wide_f32 ? kShortSequence : kShortOnAverage, are_many);
}

SequencesView chunked_sequences(const ops::RecurrentAttentionProblem& problem,
                                const ops::RecurrentAttentionArgs& args) {
  SequencesView view = walked_sequences(args, problem.T);
  view.most_left_out = std::max(view.most_left_out, most_left_out(problem));
  return view;
}

void launch_short_outputs(const ops::RecurrentAttentionProblem& problem,
                          const ops::RecurrentAttentionArgs& args, cudaStream_t stream) {
  ForwardParams params{inputs_of(problem, args), token_view(args.o)};
  params.most_tokens = kShortSequence;
  with_element<float, __half, __nv_bfloat16>(
      problem.dtype, [&]<class T>() { launch_forward<T>(params, kWarps, stream); });
}

std::size_t short_gradients_bytes(const ops::RecurrentAttentionProblem& problem) {
  return BackwardMemory(problem, nullptr).parts.used();
}

void launch_short_gradients(const ops::RecurrentAttentionProblem& problem,
                            const ops::RecurrentAttentionBackwardArgs& args, std::int64_t most,
                            const GammaOutput& dgamma, std::byte* memory, cudaStream_t stream) {
  BackwardParams params = backward_params(problem, args, BackwardMemory(problem, memory));
  params.most_tokens = most;
  params.dgamma = dgamma;
  launch_gradients(problem, params, kWarps, stream);
}

}  // namespace attune::cuda::pairs
