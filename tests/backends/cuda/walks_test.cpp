// What conformance does not reach of the kernels that take every problem, cuda.fused_recurrent and
// cuda.chunk_tf32, and of the ones that take f32, cuda.chunk_mma: long sequences of weak decay,
// resets and decays too strong for a chunk, large heads, many heads, more than 2^31 elements, NaN,
// and bounds that only the device knows.
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionOptions;

constexpr double kF32Tolerance = 2e-5;
constexpr double kBf16Tolerance = 5e-3;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

double error_of(const ConstTensorView& actual, const ConstTensorView& expected) {
  return relative_rms_error(to_doubles(actual), to_doubles(expected));
}

ops::CallOptions on_the_oracle() {
  return {.platform = "reference", .context = &heuristic_context()};
}
/// The configs that name a kernel and its backward one.
struct TestedKernel {
  const char* name;
  const char* forward;
  const char* backward;
  bool takes_all = true;  // types, heads of any size
};
void PrintTo(const TestedKernel& kernel, std::ostream* out) { *out << kernel.name; }

ops::CallOptions on_the_gpu(const TestedKernel& kernel) {
  return {.platform = "cuda", .config = kernel.forward, .context = &heuristic_context()};
}
ops::CallOptions backward_on_the_gpu(const TestedKernel& kernel) {
  return {.platform = "cuda", .config = kernel.backward, .context = &heuristic_context()};
}

using Gate = OptionalConstTensorView RecurrentAttentionOptions::*;

/// Inputs of one call, on the host and on the GPU.
class Call {
 public:
  Call(const Device& gpu, const TestedKernel& kernel, const Extents& keys, std::int64_t values,
       DType dtype = DType::kF32)
      : gpu_(&gpu), kernel_(kernel) {
    const Extents rows{keys[0], keys[1], keys[2], values};
    for (const Extents& shape : {keys, keys, rows, rows}) host_.push_back(random_(shape, dtype));
  }

  RandomTensors& random() { return random_; }
  Tensor& k() { return host_[1]; }
  void add(Gate gate, Tensor values) { gates_.emplace_back(gate, std::move(values)); }

  ops::RecurrentAttentionResult expected() const {
    RecurrentAttentionOptions options{.want_final_state = true, .call = on_the_oracle()};
    for (const auto& [gate, values] : gates_) options.*gate = values.view();
    return ops::recurrent_attention(host_[0], host_[1], host_[2], options);
  }
  ops::RecurrentAttentionGradients expected_gradients() const {
    RecurrentAttentionOptions options{.call = on_the_oracle()};
    for (const auto& [gate, values] : gates_) options.*gate = values.view();
    return ops::recurrent_attention_backward(host_[0], host_[1], host_[2], {.d_o = host_[3].view()},
                                             options);
  }

  ops::RecurrentAttentionResult actual() const {
    const std::vector<Tensor> in = uploaded(host_);
    const std::vector<Tensor> gates = uploaded_gates();
    RecurrentAttentionOptions options{.want_final_state = true, .call = on_the_gpu(kernel_)};
    for (std::size_t i = 0; i < gates.size(); ++i) options.*gates_[i].first = gates[i].view();
    const auto found = ops::recurrent_attention(in[0], in[1], in[2], options);
    return {to_host(found.o, *gpu_), to_host(*found.final_state, *gpu_)};
  }
  ops::RecurrentAttentionGradients actual_gradients() const {
    const std::vector<Tensor> in = uploaded(host_);
    const std::vector<Tensor> gates = uploaded_gates();
    RecurrentAttentionOptions options{.call = backward_on_the_gpu(kernel_)};
    for (std::size_t i = 0; i < gates.size(); ++i) options.*gates_[i].first = gates[i].view();
    auto found =
        ops::recurrent_attention_backward(in[0], in[1], in[2], {.d_o = in[3].view()}, options);
    for (Tensor* const tensor : {&found.dq, &found.dk, &found.dv}) {
      *tensor = to_host(*tensor, *gpu_);
    }
    for (auto* const tensor : {&found.dg, &found.dg_gamma, &found.dgk, &found.dgv}) {
      if (*tensor) *tensor = to_host(**tensor, *gpu_);
    }
    return found;
  }

 private:
  std::vector<Tensor> uploaded(const std::vector<Tensor>& host) const {
    std::vector<Tensor> on_gpu;
    for (const Tensor& tensor : host) on_gpu.push_back(upload(tensor, *gpu_));
    return on_gpu;
  }
  std::vector<Tensor> uploaded_gates() const {
    std::vector<Tensor> on_gpu;
    for (const auto& [gate, values] : gates_) on_gpu.push_back(upload(values, *gpu_));
    return on_gpu;
  }

  const Device* gpu_;
  TestedKernel kernel_;
  RandomTensors random_{1};
  std::vector<Tensor> host_;  // q, k, v, do
  std::vector<std::pair<Gate, Tensor>> gates_;
};

Tensor filled(const Extents& shape, float value) {
  return Tensor::of(std::vector<float>(static_cast<std::size_t>(element_count(shape)), value),
                    shape);
}

/// The tensors that gradients have in common, each within a tolerance.
void expect_near(const ops::RecurrentAttentionGradients& actual,
                 const ops::RecurrentAttentionGradients& expected, double tolerance) {
  EXPECT_LE(error_of(actual.dq, expected.dq), tolerance);
  EXPECT_LE(error_of(actual.dk, expected.dk), tolerance);
  EXPECT_LE(error_of(actual.dv, expected.dv), tolerance);
}

/// Those of gates of channels that there are.
void expect_near_channels(const ops::RecurrentAttentionGradients& actual,
                          const ops::RecurrentAttentionGradients& expected) {
  constexpr double kTolerance = 1e-4;
  if (expected.dgk) {
    EXPECT_LE(error_of(*actual.dgk, *expected.dgk), kTolerance);
  }
  if (expected.dgv) {
    EXPECT_LE(error_of(*actual.dgv, *expected.dgv), kTolerance);
  }
}

class CudaWalks : public testing::TestWithParam<TestedKernel> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
  }
  bool is_chunked() const { return GetParam().name != std::string("fused_recurrent"); }
  const Device* gpu_ = find_gpu();
};
constexpr TestedKernel kKernels[] = {
    {"fused_recurrent", "kernel=cuda.fused_recurrent", "kernel=cuda.fused_recurrent.backward"},
    {"chunk_tf32", "kernel=cuda.chunk_tf32", "kernel=cuda.chunk_tf32.backward"},
    {"chunk_mma", "kernel=cuda.chunk_mma", "kernel=cuda.chunk_mma.backward", false},
};
std::string name_of(const testing::TestParamInfo<TestedKernel>& tested) {
  return tested.param.name;
}
INSTANTIATE_TEST_SUITE_P(Kernels, CudaWalks, testing::ValuesIn(kKernels), name_of);

TEST_P(CudaWalks, ThousandsOfTokensOfWeakDecayAreExact) {
  constexpr std::int64_t kTokens = 8192, kHeads = 2, kChannels = 32;
  const Extents shape{1, kTokens, kHeads, kChannels};
  const std::pair<Gate, Extents> gates[] = {
      {&RecurrentAttentionOptions::g_gamma, {kHeads}},
      {&RecurrentAttentionOptions::gk, shape},
      {&RecurrentAttentionOptions::gv, shape},
  };
  for (const float decay : {-1e-8F, -3e-7F, -1e-5F, -1e-3F, -0.3F, -60.0F, kMinusInfinity}) {
    for (const auto& [gate, extents] : gates) {
      SCOPED_TRACE(testing::Message() << decay << ", gate of rank " << extents.rank());
      Call call(*gpu_, GetParam(), shape, kChannels);
      call.add(gate, filled(extents, decay));
      const auto expected = call.expected();
      const auto actual = call.actual();
      EXPECT_LE(error_of(actual.o, expected.o), kF32Tolerance);
      EXPECT_LE(error_of(*actual.final_state, *expected.final_state), kF32Tolerance);
    }
  }
}

TEST_P(CudaWalks, GradientsOfThousandsOfTokensOfWeakDecayAreExact) {
  constexpr std::int64_t kTokens = 8192, kHeads = 2, kChannels = 32;
  const Extents shape{1, kTokens, kHeads, kChannels};
  for (const float decay : {-3e-7F, -1e-3F}) {
    for (const Gate gate : {&RecurrentAttentionOptions::gk, &RecurrentAttentionOptions::gv}) {
      SCOPED_TRACE(decay);
      Call call(*gpu_, GetParam(), shape, kChannels);
      call.add(&RecurrentAttentionOptions::g, filled({1, kTokens, kHeads}, decay));
      call.add(gate, filled(shape, decay));
      const auto expected = call.expected_gradients();
      const auto actual = call.actual_gradients();
      expect_near(actual, expected, kF32Tolerance);
      // Relative to themselves: they are sums over all later tokens, and as large.
      EXPECT_LE(error_of(*actual.dg, *expected.dg), 1e-4);
      expect_near_channels(actual, expected);
    }
  }
}

/// Every so many tokens the decays are resets, or too strong for their chunk to be walked at once.
Tensor strong_among_weak(const Extents& shape, float strong) {
  constexpr std::int64_t kApart = 37;
  const std::int64_t tokens = shape[1], heads = shape[2], channels = shape[3];
  Tensor decays = filled(shape, -0.01F);
  for (std::int64_t token = 5; token < tokens; token += kApart) {
    for (std::int64_t channel = token % 3; channel < channels; channel += 3) {
      decays.values<float>()[token * heads * channels + channel] = strong;
    }
  }
  return decays;
}

TEST_P(CudaWalks, TakesResetsAndStrongDecaysAmongWeakOnes) {
  const std::vector<Gate> gates[] = {
      {&RecurrentAttentionOptions::gk},
      {&RecurrentAttentionOptions::gv},
      {&RecurrentAttentionOptions::gk, &RecurrentAttentionOptions::gv},
  };
  for (const std::int64_t channels : {40, 100, 200}) {
    for (const float strong : {kMinusInfinity, -400.0F, -40.0F}) {
      for (const std::vector<Gate>& given : gates) {
        SCOPED_TRACE(testing::Message()
                     << strong << ", gates " << given.size() << ", channels " << channels);
        const Extents shape{1, 333, 2, channels};
        Call call(*gpu_, GetParam(), shape, channels);
        for (const Gate gate : given) call.add(gate, strong_among_weak(shape, strong));
        const auto expected = call.expected();
        const auto actual = call.actual();
        EXPECT_LE(error_of(actual.o, expected.o), kF32Tolerance);
        EXPECT_LE(error_of(*actual.final_state, *expected.final_state), kF32Tolerance);
        const auto gradients = call.expected_gradients();
        const auto found = call.actual_gradients();
        expect_near(found, gradients, kF32Tolerance);
        expect_near_channels(found, gradients);
      }
    }
  }
}

TEST_P(CudaWalks, TakesHeadsLargerThanABlock) {
  if (!GetParam().takes_all) GTEST_SKIP() << "takes no heads as large";
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1000, 300}, {4096, 8}, {3, 4096}};
  for (const auto& [keys, values] : sizes) {
    SCOPED_TRACE(testing::Message() << "K " << keys << ", V " << values);
    Call call(*gpu_, GetParam(), {1, 27, 2, keys}, values);
    call.add(&RecurrentAttentionOptions::gk, call.random().log_decays({1, 27, 2, keys}));
    const auto expected = call.expected();
    const auto actual = call.actual();
    EXPECT_LE(error_of(actual.o, expected.o), kF32Tolerance);
    EXPECT_LE(error_of(*actual.final_state, *expected.final_state), kF32Tolerance);

    const auto gradients = call.expected_gradients();
    const auto found = call.actual_gradients();
    expect_near(found, gradients, kF32Tolerance);
    EXPECT_LE(error_of(*found.dgk, *gradients.dgk), 1e-4);
  }
}

TEST_P(CudaWalks, OfNoSequencesTheGradientOfASharedDecayIsZero) {
  const Extents shape{0, 30, 2, 8};
  const Tensor none(DType::kF32, shape, *gpu_);
  Tensor dq(DType::kF32, shape, *gpu_), dk(DType::kF32, shape, *gpu_);
  Tensor dv(DType::kF32, shape, *gpu_);
  const Tensor gamma = upload(filled({2}, -0.1F), *gpu_);
  Tensor dgamma = upload(filled({2}, std::numeric_limits<float>::quiet_NaN()), *gpu_);
  ops::recurrent_attention_backward_into(
      {.dq = dq, .dk = dk, .dv = dv, .dg_gamma = dgamma.view()}, none, none, none,
      {.d_o = none.view()}, {.g_gamma = gamma.view(), .call = backward_on_the_gpu(GetParam())});
  EXPECT_EQ(to_doubles(to_host(dgamma, *gpu_)), (std::vector<double>{0, 0}));
}

TEST_P(CudaWalks, TakesMoreHeadsThanAGridIsHigh) {
  constexpr std::int64_t kBatches = 23000, kHeads = 3;
  if (is_chunked()) GTEST_SKIP() << "takes no sequence as short";
  Call call(*gpu_, GetParam(), {kBatches, 2, kHeads, 4}, 3);
  call.add(&RecurrentAttentionOptions::g, call.random().log_decays({kBatches, 2, kHeads}));
  call.add(&RecurrentAttentionOptions::g_gamma, call.random().log_decays({kHeads}));
  const auto expected = call.expected();
  const auto actual = call.actual();
  EXPECT_LE(error_of(actual.o, expected.o), kF32Tolerance);
  EXPECT_LE(error_of(*actual.final_state, *expected.final_state), kF32Tolerance);

  const auto gradients = call.expected_gradients();
  const auto found = call.actual_gradients();
  expect_near(found, gradients, kF32Tolerance);
  EXPECT_LE(error_of(*found.dg, *gradients.dg), 1e-4);
  EXPECT_LE(error_of(*found.dg_gamma, *gradients.dg_gamma), 1e-4);
}

/// A batch copied many times, so that all results but one need no oracle.
TEST_P(CudaWalks, ReachesTheEndOfMoreThanTwoToThe31Elements) {
  constexpr std::int64_t kTokens = 4096, kHeads = 128, kChannels = 64;
  constexpr std::int64_t kBatchElements = kTokens * kHeads * kChannels;
  constexpr std::int64_t kBatches = (std::int64_t{1} << 31) / kBatchElements + 2;
  constexpr std::int64_t kTensors = 4;
  if (gpu_->info().memory_bytes < (kTensors + 1) * kBatches * kBatchElements * 2) {
    GTEST_SKIP() << "needs memory";
  }
  RandomTensors random(5);
  const Extents one{1, kTokens, kHeads, kChannels};
  const Extents all{kBatches, kTokens, kHeads, kChannels};
  std::vector<Tensor> host, on_gpu;
  for (int i = 0; i < 3; ++i) {
    host.push_back(random(one, DType::kBF16));
    on_gpu.emplace_back(DType::kBF16, all, *gpu_);
    for (std::int64_t b = 0; b < kBatches; ++b) {
      gpu_->copy_to_device(on_gpu.back().view().slice(0, b, b + 1).data, host.back().view().data,
                           host.back().bytes(), nullptr);
    }
    gpu_->synchronize(nullptr);
  }
  const Tensor gamma = filled({kHeads}, -0.01F);
  const Tensor gamma_on_gpu = upload(gamma, *gpu_);
  RecurrentAttentionOptions options{.call = on_the_gpu(GetParam())};
  options.g_gamma = gamma_on_gpu.view();
  const auto found = ops::recurrent_attention(on_gpu[0], on_gpu[1], on_gpu[2], options);

  const auto o_of = [&](std::int64_t b) {
    return to_host(found.o.view().slice(0, b, b + 1), *gpu_);
  };
  const Tensor first = o_of(0);
  const Tensor last = o_of(kBatches - 1);
  EXPECT_EQ(to_doubles(first), to_doubles(last));
  const std::int64_t head = kHeads - 1;
  const auto head_of = [&](const Tensor& tensor) { return tensor.view().slice(2, head, head + 1); };
  options = {.call = on_the_oracle()};
  const ConstTensorView gamma_of_head = gamma.view().slice(0, head, head + 1);
  options.g_gamma = gamma_of_head;
  const auto expected =
      ops::recurrent_attention(head_of(host[0]), head_of(host[1]), head_of(host[2]), options);
  EXPECT_LE(error_of(head_of(last), expected.o), kBf16Tolerance);
}

TEST_P(CudaWalks, ANanStaysInItsHead) {
  constexpr std::int64_t kTokens = 70, kHeads = 3, kChannels = 40;
  const auto make = [&] {
    Call call(*gpu_, GetParam(), {1, kTokens, kHeads, kChannels}, kChannels);
    call.add(&RecurrentAttentionOptions::g, call.random().log_decays({1, kTokens, kHeads}));
    call.add(&RecurrentAttentionOptions::gv,
             call.random().log_decays({1, kTokens, kHeads, kChannels}));
    return call;
  };
  const Call clean = make();
  Call sick = make();
  sick.k().values<float>()[kChannels] = std::numeric_limits<float>::quiet_NaN();  // head 1

  const auto compare = [&](const Tensor& a, const Tensor& b, int head_dim) {
    for (const std::int64_t head : {0, 2}) {
      EXPECT_EQ(to_doubles(copy_of(a.view().slice(head_dim, head, head + 1))),
                to_doubles(copy_of(b.view().slice(head_dim, head, head + 1))));
    }
  };
  const auto before = clean.actual();
  const auto after = sick.actual();
  compare(before.o, after.o, 2);
  compare(*before.final_state, *after.final_state, 1);
  EXPECT_TRUE(std::isnan(to_doubles(copy_of(after.o.view().slice(2, 1, 2))).back()));

  const auto gradients = clean.actual_gradients();
  const auto sick_gradients = sick.actual_gradients();
  compare(gradients.dq, sick_gradients.dq, 2);
  compare(gradients.dk, sick_gradients.dk, 2);
  compare(gradients.dv, sick_gradients.dv, 2);
  compare(*gradients.dg, *sick_gradients.dg, 2);
  if (gradients.dgk) compare(*gradients.dgk, *sick_gradients.dgk, 2);
  if (gradients.dgv) compare(*gradients.dgv, *sick_gradients.dgv, 2);
}

/// A tensor between two others that nobody may write.
class Guarded {
 public:
  Guarded(const Device& gpu, const Extents& shape)
      : gpu_(&gpu), elements_(element_count(shape)), memory_(make(gpu, elements_)) {
    view_ = TensorView(static_cast<float*>(memory_.view().data) + kGuard, DType::kF32, shape,
                       gpu.info().id);
  }

  TensorView view() const { return view_; }
  bool is_intact() const {
    const std::vector<double> now = to_doubles(to_host(memory_, *gpu_));
    const auto untouched = [](double x) { return x == kCanary; };
    return std::all_of(now.begin(), now.begin() + kGuard, untouched) &&
           std::all_of(now.end() - kGuard, now.end(), untouched);
  }

 private:
  static constexpr std::int64_t kGuard = 4096;
  static constexpr float kCanary = 12345.0F;
  static Tensor make(const Device& gpu, std::int64_t elements) {
    return upload(filled({elements + 2 * kGuard}, kCanary), gpu);
  }

  const Device* gpu_;
  std::int64_t elements_;
  Tensor memory_;
  TensorView view_;
};

/// Bounds are checked on the host only where the host has them.
TEST_P(CudaWalks, BoundsThatAreWrongLeadOutOfNoTensor) {
  constexpr std::int64_t kTokens = 100, kHeads = 2, kChannels = 24, kSequences = 4;
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  RandomTensors random(9);
  const Extents rows{1, kTokens, kHeads, kChannels};
  std::vector<Tensor> in;
  for (int i = 0; i < 4; ++i) in.push_back(upload(random(rows), *gpu_));
  const Tensor gk = upload(random.log_decays(rows), *gpu_);
  const Tensor gamma = upload(random.log_decays({kHeads}), *gpu_);
  for (const std::vector<std::int64_t>& bounds :
       std::vector<std::vector<std::int64_t>>{{0, 30, 30, 90, 100},
                                              {-5, kHuge, 20, -kHuge, 60},
                                              {90, 70, 50, 30, 10},
                                              {kHuge, kHuge, kHuge, kHuge, kHuge},
                                              {0, 100, 0, 100, 0}}) {
    const Tensor cu_seqlens = upload(Tensor::of(bounds, {kSequences + 1}), *gpu_);
    RecurrentAttentionOptions options{.call = on_the_gpu(GetParam())};
    options.gk = gk.view();
    options.g_gamma = gamma.view();
    options.cu_seqlens = cu_seqlens.view();
    const Guarded o(*gpu_, rows);
    const Guarded state(*gpu_, {kSequences, kHeads, kChannels, kChannels});
    ops::recurrent_attention_into({.o = o.view(), .final_state = state.view()}, in[0], in[1], in[2],
                                  options);
    EXPECT_TRUE(o.is_intact() && state.is_intact()) << testing::PrintToString(bounds);

    const Guarded dq(*gpu_, rows), dk(*gpu_, rows), dv(*gpu_, rows), dgk(*gpu_, rows);
    const Guarded dgamma(*gpu_, {kHeads});
    options.call = backward_on_the_gpu(GetParam());
    const ops::RecurrentAttentionOutputGradients gradients{.d_o = in[3].view()};
    const auto plan =
        ops::plan_recurrent_attention_backward(in[0], in[1], in[2], gradients, options);
    const Guarded workspace(*gpu_, {static_cast<std::int64_t>(plan.workspace_bytes() / 4)});
    const auto args =
        ops::recurrent_attention_backward_args({.dq = dq.view(),
                                                .dk = dk.view(),
                                                .dv = dv.view(),
                                                .dg_gamma = dgamma.view(),
                                                .dgk = dgk.view()},
                                               in[0], in[1], in[2], gradients, options);
    plan.launch(args, nullptr,
                {static_cast<std::byte*>(workspace.view().data), plan.workspace_bytes()});
    gpu_->synchronize(nullptr);
    for (const Guarded* const tensor : {&dq, &dk, &dv, &dgk, &dgamma, &workspace}) {
      EXPECT_TRUE(tensor->is_intact()) << testing::PrintToString(bounds);
    }
  }
}

}  // namespace
}  // namespace attune::test
