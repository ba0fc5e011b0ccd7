// The kernels for CPUs: a function each that makes one, and the list of all.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

// The oracle: every op in double, every legal problem, nothing to tune. Plain rather than fast,
// though not slow: it also runs where nothing else supports a problem.
namespace attune::cpu::reference {

std::unique_ptr<const ErasedKernel> make_recurrent_attention();
std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward();
std::unique_ptr<const ErasedKernel> make_recurrent_decode();
std::unique_ptr<const ErasedKernel> make_state_fold();
std::unique_ptr<const ErasedKernel> make_state_summary();

}  // namespace attune::cpu::reference

// The fast ones: written once with vectors, compiled for several instruction sets.
namespace attune::cpu::simd {

namespace recurrent_attention {
std::unique_ptr<const ErasedKernel> make();
namespace backward {
std::unique_ptr<const ErasedKernel> make();
}
}  // namespace recurrent_attention

namespace chunk {
std::unique_ptr<const ErasedKernel> make();
namespace backward {
std::unique_ptr<const ErasedKernel> make();
}
namespace summary {
std::unique_ptr<const ErasedKernel> make();
}
}  // namespace chunk

namespace chunk_tiles {
std::unique_ptr<const ErasedKernel> make();
namespace backward {
std::unique_ptr<const ErasedKernel> make();
}
}  // namespace chunk_tiles

namespace decode {
std::unique_ptr<const ErasedKernel> make();
}

}  // namespace attune::cpu::simd

namespace attune::cpu {

using MakeKernel = std::unique_ptr<const ErasedKernel>();

/// Best first, where none expects to be faster than another.
inline constexpr MakeKernel* kSimdKernels[] = {
    simd::chunk_tiles::make,     simd::recurrent_attention::make,
    simd::chunk::make,           simd::chunk_tiles::backward::make,
    simd::chunk::backward::make, simd::recurrent_attention::backward::make,
    simd::decode::make,          simd::chunk::summary::make,
};

inline constexpr MakeKernel* kReferenceKernels[] = {
    reference::make_recurrent_attention, reference::make_recurrent_attention_backward,
    reference::make_recurrent_decode,    reference::make_state_summary,
    reference::make_state_fold,
};

}  // namespace attune::cpu
