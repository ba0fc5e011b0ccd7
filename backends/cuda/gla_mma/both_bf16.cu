#include "gla_mma.cuh"

namespace attune::cuda::gla_mma {
template void launch_gla_mma<__nv_bfloat16, Gated::kBoth, Products::kMma>(const Params&,
                                                                          const GlaMmaConfig&,
                                                                          cudaStream_t);
}  // namespace attune::cuda::gla_mma
