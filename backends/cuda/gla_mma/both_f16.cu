#include "gla_mma.cuh"

namespace attune::cuda::gla_mma {
template void launch_gla_mma<__half, Gated::kBoth, Products::kMma>(const Params&,
                                                                   const GlaMmaConfig&,
                                                                   cudaStream_t);
}  // namespace attune::cuda::gla_mma
