// An op of one's own in CUDA C++ that is compiled at run time: NVRTC makes it for this GPU, attune
// checks and tunes it over block sizes and unrolling, and keeps the winner and what was compiled
// for the next process. The op and its reference are those of examples/08_cuda_op.
//
//   y[i] = silu(a[i]) * b[i]        silu(x) = x / (1 + exp(-x))
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <attune/attune.hpp>
#include <attune/core/function_kernel.hpp>
#include <attune/core/prepared_kernel.hpp>

#include "08_cuda_op/silu_mul.hpp"

namespace {

using attune::DeviceInfo;
using attune::LaunchSite;
using attune::Support;
using mine::SiluMul;
using mine::SiluMulProblem;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}
void check(nvrtcResult status) {
  if (status != NVRTC_SUCCESS) throw std::runtime_error(nvrtcGetErrorString(status));
}

// 1. The kernel's source, with what may be tuned as macros.
constexpr const char* kSource = R"cuda(
extern "C" __global__ void __launch_bounds__(BLOCK)
silu_mul(const float* a, const float* b, float* y, long long n) {
  const long long first = (long long)blockIdx.x * BLOCK * UNROLL + threadIdx.x;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) {
    const long long at = first + (long long)i * BLOCK;
    if (at < n) y[at] = a[at] / (1.0f + expf(-a[at])) * b[at];
  }
}
)cuda";

struct CompiledConfig {
  using Op = SiluMul;
  int block = 256;
  int unroll = 4;
  friend constexpr bool operator==(const CompiledConfig&, const CompiledConfig&) = default;
  // Launch axes: attune need not instantiate anything, the compiler does at run time.
  static constexpr auto axes() {
    return std::tuple{
        attune::launch_axis("block", &CompiledConfig::block, {64, 128, 256, 512, 1024}),
        attune::launch_axis("unroll", &CompiledConfig::unroll, {1, 2, 4, 8})};
  }
};

// 2. What is made before it can run: a module of this GPU's.
class Module {
 public:
  explicit Module(const std::string& cubin) {
    check(cudaLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    check(cudaLibraryGetKernel(&kernel_, library_, "silu_mul"));
  }
  ~Module() { cudaLibraryUnload(library_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  const void* kernel() const { return kernel_; }

 private:
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};

std::string compile(const std::vector<std::string>& options) {
  nvrtcProgram program = nullptr;
  check(nvrtcCreateProgram(&program, kSource, "silu_mul.cu", 0, nullptr, nullptr));
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  if (nvrtcCompileProgram(program, static_cast<int>(texts.size()), texts.data()) != NVRTC_SUCCESS) {
    std::size_t bytes = 0;
    nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, '\0');
    nvrtcGetProgramLog(program, log.data());
    nvrtcDestroyProgram(&program);
    throw std::runtime_error("NVRTC: " + log);
  }
  std::size_t bytes = 0;
  check(nvrtcGetCUBINSize(program, &bytes));
  std::string cubin(bytes, '\0');
  check(nvrtcGetCUBIN(program, cubin.data()));
  check(nvrtcDestroyProgram(&program));
  return cubin;
}

class Compiled final : public attune::PreparedKernel<CompiledConfig, Module> {
 public:
  std::string_view name() const noexcept override { return "mine.silu_mul"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "gpu" ? Support::yes()
                                      : Support::no(attune::refused::kDevice, "needs a GPU");
  }
  CompiledConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }

  /// The same code serves every n.
  std::string prepare_key(const Problem&, const CompiledConfig& config) const override {
    return attune::to_text(attune::to_params(config));
  }
  std::shared_ptr<const Module> prepare(const Problem&, const CompiledConfig& config,
                                        const attune::PrepareSite& site) const override {
    const std::vector<std::string> options{"--gpu-architecture=" + site.device.info().arch,
                                           "-DBLOCK=" + std::to_string(config.block),
                                           "-DUNROLL=" + std::to_string(config.unroll)};
    int major = 0, minor = 0;
    check(nvrtcVersion(&major, &minor));
    std::string key = attune::str("nvrtc ", major, '.', minor, '\n');
    for (const std::string& option : options) key += option + '\n';
    key += kSource;
    if (const auto cubin = site.artifacts.find(key)) return std::make_shared<Module>(*cubin);
    const std::string cubin = compile(options);
    site.artifacts.keep(key, cubin);
    return std::make_shared<Module>(cubin);
  }

  void run_with(const Module& module, const Problem& p, const Args& args,
                const CompiledConfig& config, const LaunchSite& site) const override {
    const void* a = args.a.data;
    const void* b = args.b.data;
    void* y = args.y.data;
    long long n = p.n;
    void* parameters[] = {&a, &b, &y, &n};
    const long long a_block = static_cast<long long>(config.block) * config.unroll;
    const dim3 grid(static_cast<unsigned>((n + a_block - 1) / a_block));
    check(cudaLaunchKernel(module.kernel(), grid, dim3(static_cast<unsigned>(config.block)),
                           parameters, 0, static_cast<cudaStream_t>(site.stream)));
  }
};

void register_mine(attune::Registry& registry) {
  registry.add_op<SiluMul>();
  registry.add(attune::make_kernel<SiluMul>("reference.silu_mul", 1, mine::silu_mul_in_double),
               {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Compiled>(),
               {.platform = "mine", .backend = "gpu", .priority = 10});
}

int run(const std::string& database) {
  const SiluMulProblem problem{.n = std::int64_t{1} << 24};
  const attune::Extents shape{problem.n};
  // Two contexts stand for two processes: the second finds the tuned config in the database, and
  // its code in the folder ATTUNE_CACHE_DIR.
  for (const attune::Policy policy : {attune::Policy::kTune, attune::Policy::kDb}) {
    const auto context = attune::make_context(
        {.register_kernels = {register_mine}, .policy = policy, .database = database});
    const attune::Device& gpu = context->registry().device({.backend = "gpu", .index = 0});
    const auto events = context->events().subscribe([](const attune::Event& event) {
      if (event.kind == attune::EventKind::kTuneFinished) {
        std::printf("  prepared %lld candidates in %.1f ms\n",
                    static_cast<long long>(event.candidates), event.prepare_us / 1000);
      }
      if (event.kind != attune::EventKind::kPrepared) return;
      std::printf("  prepared %s in %.1f ms: %s\n", std::string(event.config).c_str(),
                  event.prepare_us / 1000, std::string(event.reason).c_str());
    });
    const auto plan = attune::Executor(*context).plan<SiluMul>(problem, {.device = &gpu});
    const attune::Tensor a(attune::DType::kF32, shape, gpu), b(attune::DType::kF32, shape, gpu);
    attune::Tensor y(attune::DType::kF32, shape, gpu);
    plan.launch({.a = a.view(), .b = b.view(), .y = y.view()});
    gpu.synchronize(nullptr);
    std::printf("%s: %s from the %s tier\n", std::string(plan.choice().kernel->name()).c_str(),
                config_text(*plan.choice().kernel, plan.choice().config).c_str(),
                std::string(to_string(plan.choice().tier)).c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::puts("no GPU: nothing to compile for");
    return 0;
  }
  try {
    return run(argc > 1 ? argv[1] : "nvrtc_kernel.db");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
