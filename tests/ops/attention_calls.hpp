// Legal calls of recurrent_attention, for tests to break.
#pragma once

#include <optional>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention.hpp>

namespace attune::test {

inline constexpr std::int64_t kB = 2, kT = 6, kH = 4, kHkv = 2, kK = 8, kV = 16;

/// Tensors that live as long as it.
class Memory {
 public:
  TensorView zeros(DType dtype, const Extents& shape) {
    Tensor& tensor = tensors_.emplace_back(dtype, shape);
    if (tensor.bytes() != 0)
      cpu_device().fill(tensor.view().data, std::byte{0}, tensor.bytes(), nullptr);
    return tensor.view();
  }
  TensorView f32(const Extents& shape) { return zeros(DType::kF32, shape); }

  template <class T>
  TensorView of(const std::vector<T>& values) {
    return tensors_.emplace_back(Tensor::of(values, {static_cast<std::int64_t>(values.size())}))
        .view();
  }

 private:
  std::vector<Tensor> tensors_;
};

/// The inputs of a call, members to be replaced at will.
struct AttentionCall {
  Memory memory;
  TensorView q = memory.f32({kB, kT, kH, kK});
  TensorView k = memory.f32({kB, kT, kHkv, kK});
  TensorView v = memory.f32({kB, kT, kHkv, kV});
  ops::RecurrentAttentionOptions options;

  TensorView g() { return memory.f32({kB, kT, kH}); }
  TensorView gk() { return memory.f32({kB, kT, kH, kK}); }
  TensorView gv() { return memory.f32({kB, kT, kH, kV}); }
  TensorView g_gamma() { return memory.f32({kH}); }
  TensorView state(std::int64_t sequences = kB) { return memory.f32({sequences, kH, kK, kV}); }

  /// One row of the batch, whose kT tokens are two sequences.
  void pack() {
    q = q.slice(0, 0, 1);
    k = k.slice(0, 0, 1);
    v = v.slice(0, 0, 1);
    options.cu_seqlens = memory.of(std::vector<std::int32_t>{0, 2, kT});
  }
};

struct ForwardCall : AttentionCall {
  ops::RecurrentAttentionOutputs out{.o = memory.f32({kB, kT, kH, kV})};

  void pack() {
    AttentionCall::pack();
    out.o = out.o.slice(0, 0, 1);
  }
  void run() { ops::recurrent_attention_into(out, q, k, v, options); }
  void lower() { ops::recurrent_attention_args(out, q, k, v, options); }
};

/// With every gate and state, so that each gradient is there.
struct BackwardCall : AttentionCall {
  BackwardCall() {
    options.g = g();
    options.gk = gk();
    options.gv = gv();
    options.g_gamma = g_gamma();
    options.initial_state = state();
  }
  ops::RecurrentAttentionOutputGradients gradients{.d_o = memory.f32({kB, kT, kH, kV}),
                                                   .dfinal_state = state()};
  ops::RecurrentAttentionGradientOutputs out{.dq = memory.f32({kB, kT, kH, kK}),
                                             .dk = memory.f32({kB, kT, kHkv, kK}),
                                             .dv = memory.f32({kB, kT, kHkv, kV}),
                                             .dg = g(),
                                             .dg_gamma = g_gamma(),
                                             .dgk = gk(),
                                             .dgv = gv(),
                                             .dinitial_state = state()};
  void run() { ops::recurrent_attention_backward_into(out, q, k, v, gradients, options); }
};

/// `view` with other strides.
inline TensorView with_strides(TensorView view, const Extents& strides) {
  view.strides = strides;
  return view;
}

inline TensorView on_gpu(TensorView view) {
  view.device = {"gpu", 0};
  return view;
}

inline TensorView null(TensorView view) {
  view.data = nullptr;
  return view;
}

}  // namespace attune::test
