// The fast kernels for CPUs: written once with vectors, compiled for several instruction sets.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cpu::simd {

std::unique_ptr<const ErasedKernel> make_chunk_attention();
std::unique_ptr<const ErasedKernel> make_chunk_backward();
std::unique_ptr<const ErasedKernel> make_chunk_tiles();
std::unique_ptr<const ErasedKernel> make_chunk_tiles_backward();
std::unique_ptr<const ErasedKernel> make_recurrent_attention();
std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward();
std::unique_ptr<const ErasedKernel> make_recurrent_decode();

}  // namespace attune::cpu::simd
