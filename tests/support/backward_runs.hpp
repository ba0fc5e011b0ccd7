// The simd kernels of recurrent_attention.backward, run on tensors and held against the reference.
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/core/kernel.hpp>

#include "support/recurrent_tensors.hpp"

namespace attune::test {

inline constexpr std::string_view kRecurrentBackward = "simd.recurrent_attention.backward";
inline constexpr std::string_view kChunkBackward = "simd.chunk.backward";

const ErasedKernel& simd_backward_kernel(std::string_view name);

/// With the heuristic's config, but for the `overrides`, on problems that it would rather leave to
/// another kernel too.
void run_simd_backward(std::string_view kernel, const RecurrentTensors& tensors,
                       const Params& overrides = {});

void run_reference_backward(const RecurrentTensors& tensors);

/// Expects all gradients within the tolerances of their types.
void expect_like_reference(const RecurrentTensors& simd, const RecurrentTensors& reference);
void expect_like_reference(std::string_view kernel, const ops::RecurrentAttentionProblem& problem,
                           std::uint64_t seed, const Params& overrides = {});

}  // namespace attune::test
