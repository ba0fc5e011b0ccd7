// A prompt and then tokens on the GPU, in the caller's memory and on the caller's stream; the step
// of a token is captured in a CUDA graph once and replayed.
//
// Choosing (and, the first time, tuning) a kernel happens when a plan is made. Launching one
// allocates nothing, waits for nothing and looks nothing up.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

#include <attune/attune.hpp>

namespace {

using attune::Extents;
using attune::TensorView;

constexpr std::int64_t kPrompt = 512, kTokens = 64, kHeads = 8, kChannels = 64;
constexpr std::int64_t kAll = kPrompt + kTokens;
constexpr std::size_t kTokenBytes = kHeads * kChannels * sizeof(float);

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Memory as a program of yours may have it: attune only borrows it.
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t bytes) { check(cudaMalloc(&data_, bytes)); }
  explicit DeviceArray(const std::vector<float>& host) : DeviceArray(host.size() * sizeof(float)) {
    check(cudaMemcpy(data_, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void* token(std::int64_t t) const {
    return static_cast<std::byte*>(data_) + static_cast<std::size_t>(t) * kTokenBytes;
  }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  TensorView view(const Extents& shape) const {
    return {static_cast<float*>(data_), shape, {.backend = "gpu", .index = 0}};
  }

 private:
  void* data_ = nullptr;
};

std::vector<float> random_tokens(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kAll * kHeads * kChannels);
  for (float& value : values) value = normal(random);
  return values;
}

/// All of it as one call on the host, in double precision.
double largest_difference(const std::vector<float>& o, const std::vector<float>& q,
                          const std::vector<float>& k, const std::vector<float>& v,
                          const std::vector<float>& gamma) {
  const Extents shape{1, kAll, kHeads, kChannels};
  const auto expected =
      attune::ops::recurrent_attention({q.data(), shape}, {k.data(), shape}, {v.data(), shape},
                                       {.g_gamma = attune::ConstTensorView(gamma.data(), {kHeads}),
                                        .call = {.platform = "reference"}});
  float largest = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    largest = std::max(largest, std::abs(o[i] - expected.o.values<float>()[i]));
  }
  return static_cast<double>(largest);
}

int run() {
  const std::vector<float> host_q = random_tokens(1), host_k = random_tokens(2),
                           host_v = random_tokens(3), host_gamma(kHeads, -0.05F);
  const DeviceArray q(host_q), k(host_k), v(host_v), gamma_values(host_gamma);
  const DeviceArray o(kAll * kTokenBytes), states(kTokenBytes * kChannels);
  const TensorView gamma = gamma_values.view({kHeads});
  const TensorView state = states.view({1, kHeads, kChannels, kChannels});
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));

  // The prompt. Its final state is the state that decoding goes on with.
  const Extents prompt{1, kPrompt, kHeads, kChannels};
  const attune::ops::RecurrentAttentionOptions options{.g_gamma = gamma, .want_final_state = true};
  const auto attention = attune::ops::plan_recurrent_attention(q.view(prompt), k.view(prompt),
                                                               v.view(prompt), options);
  const DeviceArray workspace(std::max<std::size_t>(attention.workspace_bytes(), 1));
  attention.launch(attune::ops::recurrent_attention_args({o.view(prompt), state}, q.view(prompt),
                                                         k.view(prompt), v.view(prompt), options),
                   stream, {workspace.bytes(), attention.workspace_bytes()});

  // One token, always in the same place, as a graph.
  const DeviceArray q_now(kTokenBytes), k_now(kTokenBytes), v_now(kTokenBytes), o_now(kTokenBytes);
  const Extents token{1, kHeads, kChannels};
  const attune::ops::LightningDecodeOptions decay{.g_gamma = gamma};
  const auto decode = attune::ops::plan_lightning_decode(q_now.view(token), k_now.view(token),
                                                         v_now.view(token), state, decay);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t step = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  decode.launch(
      attune::ops::lightning_decode_args(o_now.view(token), q_now.view(token), k_now.view(token),
                                         v_now.view(token), state, decay),
      stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&step, graph, 0));

  const auto copy = [stream](void* to, const void* from) {
    check(cudaMemcpyAsync(to, from, kTokenBytes, cudaMemcpyDeviceToDevice, stream));
  };
  for (std::int64_t t = kPrompt; t < kAll; ++t) {
    copy(q_now.bytes(), q.token(t));
    copy(k_now.bytes(), k.token(t));
    copy(v_now.bytes(), v.token(t));
    check(cudaGraphLaunch(step, stream));
    copy(o.token(t), o_now.bytes());
  }

  std::vector<float> result(host_q.size());
  check(cudaMemcpyAsync(result.data(), o.bytes(), kAll * kTokenBytes, cudaMemcpyDeviceToHost,
                        stream));
  check(cudaStreamSynchronize(stream));
  check(cudaGraphExecDestroy(step));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));

  const auto name = [](const auto& plan) { return std::string(plan.choice().kernel->name()); };
  const double difference = largest_difference(result, host_q, host_k, host_v, host_gamma);
  std::printf("prompt: %d tokens by %s, workspace %zu bytes\n", static_cast<int>(kPrompt),
              name(attention).c_str(), attention.workspace_bytes());
  std::printf("decode: %d tokens by %s, one graph replayed\n", static_cast<int>(kTokens),
              name(decode).c_str());
  std::printf("largest difference from the reference on the host: %.1e\n", difference);
  return difference < 1e-3 ? 0 : 1;
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::puts("no GPU here: nothing to do");
    return 0;
  }
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
