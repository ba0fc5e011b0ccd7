// An op of one's own in CUDA C++, compiled ahead of time: a plugin with a kernel for each block
// size and unrolling, among which attune finds the fastest on a device.
//
//   cmake -S examples/08_cuda_op -B build -DCMAKE_CUDA_ARCHITECTURES=90 && cmake --build build
//   attune ops silu_mul --plugin build/libcuda_op.so
//   attune tune silu_mul n=16777216 --plugin build/libcuda_op.so
#include <cuda_runtime_api.h>

#include <memory>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include <attune/core/function_kernel.hpp>
#include <attune/core/kernel.hpp>
#include <attune/core/plugin.hpp>

#include "silu_mul.hpp"

namespace mine {

// 1. What may be tuned. An axis picks one of the instances that are compiled: twenty here.
struct BlocksConfig {
  using Op = SiluMul;
  int block = 256;  // threads
  int unroll = 4;   // elements of a thread
  friend constexpr bool operator==(const BlocksConfig&, const BlocksConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{attune::axis("block", &BlocksConfig::block, {64, 128, 256, 512, 1024}),
                      attune::axis("unroll", &BlocksConfig::unroll, {1, 2, 4, 8})};
  }
};

// 2. The device code. A grid of one dimension, kBlock * kUnroll elements a block.
template <int kBlock, int kUnroll>
__global__ void __launch_bounds__(kBlock)
    silu_mul(const float* a, const float* b, float* y, std::int64_t n) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlock * kUnroll + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const std::int64_t at = first + std::int64_t{i} * kBlock;
    if (at < n) y[at] = a[at] / (1.0F + expf(-a[at])) * b[at];
  }
}

// 3. The kernel: where it runs, a good default, and how to launch the instance of a config.
class Blocks final : public attune::Kernel<BlocksConfig> {
 public:
  std::string_view name() const noexcept override { return "mine.silu_mul.blocks"; }
  int version() const noexcept override { return 1; }
  attune::Support supports(const Problem&, const attune::DeviceInfo&) const override {
    return attune::Support::yes();
  }
  BlocksConfig heuristic_config(const Problem&, const attune::DeviceInfo&) const override {
    return {};
  }
  void run(const Problem& p, const Args& args, const BlocksConfig& config,
           const attune::LaunchSite& site) const override {
    const auto* a = static_cast<const float*>(args.a.data);
    const auto* b = static_cast<const float*>(args.b.data);
    auto* y = static_cast<float*>(args.y.data);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    attune::dispatch(config, [&]<class Config>() {
      constexpr int kBlock = Config::kValue.block, kUnroll = Config::kValue.unroll;
      const std::int64_t blocks = (p.n + kBlock * kUnroll - 1) / (kBlock * kUnroll);
      silu_mul<kBlock, kUnroll><<<static_cast<unsigned>(blocks), kBlock, 0, stream>>>(a, b, y, p.n);
    });
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(status));
  }
};

}  // namespace mine

// 4. What attune calls. The reference runs on the host; the kernel where there is a GPU.
extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace mine;
  registry.add_op<SiluMul>();
  registry.add(attune::make_kernel<SiluMul>("reference.silu_mul", 1, silu_mul_in_double),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Blocks>(), {.platform = "mine", .backend = "gpu", .priority = 10});
}
