// A head's state in a warp's registers, transposed: S^T as blocks of 16 values by 8 keys, each of them
// a sum of mma. In the workspace states are laid out as the registers hold them.
#pragma once

#include "cuda/warp_mma/decays.cuh"
#include "cuda/warp_mma/operands.cuh"

namespace attune::cuda::warp_mma {

template <int kWidth>
struct State {
  static constexpr int kBlocks = kWidth / 16;  // of values
  static constexpr int kOctets = kWidth / 8;   // of keys
  static constexpr int kWords = kBlocks * kOctets * kWarpSize;

  float of[kBlocks][kOctets][4];

  /// The lane's channels that element e of a block belongs to, in its order of channels (rows.cuh).
  __device__ __forceinline__ static int key(int octet, int e, const Lane& lane) {
    return kWidth / 4 * lane.quarter + 2 * octet + e % 2;
  }
  __device__ __forceinline__ static int value(int block, int e, const Lane& lane) {
    return kWidth / 4 * (lane.row / 2) + 4 * block + e / 2 * 2 + lane.row % 2;
  }

  /// Calls visit(element, block, octet, e) for all of the lane's.
  template <class Visit>
  __device__ __forceinline__ void for_each(Visit&& visit) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
#pragma unroll
        for (int e = 0; e < 4; ++e) visit(of[block][octet][e], block, octet, e);
      }
    }
  }
  __device__ __forceinline__ void clear() {
    for_each([](float& element, int, int, int) { element = 0.0F; });
  }

  /// Calls visit(element, at) for its elements that exist in one [H, K, V] of the view's strides.
  template <class View, class Visit>
  __device__ __forceinline__ void for_each_in(const View& view, const Params& p, int head,
                                              const Lane& lane, Visit&& visit) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int k = key(0, e, lane);
        const int v = value(block, e, lane);
        const int keys = v < p.value_channels ? p.key_channels - k : 0;
        auto* at = view.data + head * view.head + k * view.k + v * view.v;
#pragma unroll
        for (int octet = 0; octet < kOctets; ++octet) {
          if (2 * octet < keys) visit(of[block][octet][e], *at);
          at += 2 * view.k;
        }
      }
    }
  }
  /// Zeros where there is none.
  __device__ __forceinline__ void load(const ConstStateView& view, const Params& p, int head,
                                       const Lane& lane) {
    clear();
    if (view.data == nullptr) return;
    for_each_in(view, p, head, lane, [](float& element, const float& from) { element = from; });
  }
  __device__ __forceinline__ void store(const StateView& view, const Params& p, int head,
                                        const Lane& lane) {
    if (view.data == nullptr) return;
    for_each_in(view, p, head, lane, [](const float& element, float& to) { to = element; });
  }

  __device__ __forceinline__ void load_words(const float4* from, const Lane& lane) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        const float4 word = from[(block * kOctets + octet) * kWarpSize + lane.number];
        auto& to = of[block][octet];
        to[0] = word.x, to[1] = word.y, to[2] = word.z, to[3] = word.w;
      }
    }
  }
  __device__ __forceinline__ void store_words(float4* to, const Lane& lane) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        const auto& x = of[block][octet];
        to[(block * kOctets + octet) * kWarpSize + lane.number] = {x[0], x[1], x[2], x[3]};
      }
    }
  }

  /// Times factors of the lane's own key channels.
  template <class T, int kFactors>
  __device__ __forceinline__ void scale_keys(const Factor<T> (&factors)[kFactors]) {
    for_each([&](float& element, int, int octet, int e) {
      element = factors[2 * octet + e % 2].times(element);
    });
  }
  /// Times factors of value channels, which other lanes have.
  template <class T, int kFactors>
  __device__ __forceinline__ void scale_values(const Factor<T> (&factors)[kFactors],
                                               const Lane& lane) {
    if constexpr (kFactors == 1) {
      for_each([&](float& element, int, int, int) { element = factors[0].times(element); });
    } else {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int n = 4 * block + 2 * half;
          const Factor<T> even = factors[n].of_lane(lane.row / 2);
          const Factor<T> odd = factors[n + 1].of_lane(lane.row / 2);
          const Factor<T> own = lane.row % 2 == 0 ? even : odd;
#pragma unroll
          for (int octet = 0; octet < kOctets; ++octet) {
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; ++e) {
              of[block][octet][e] = own.times(of[block][octet][e]);
            }
          }
        }
      }
    }
  }

  /// A block of S as a right operand: 16 keys by 16 values.
  template <bool kSplit>
  __device__ __forceinline__ Operand<kSplit> operand(int key_block, int value_block) const {
    Operand<kSplit> to;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const auto& x = of[value_block][2 * key_block + word % 2];
      to.set(word, x[word / 2 * 2], x[word / 2 * 2 + 1]);
    }
    return to;
  }
};

}  // namespace attune::cuda::warp_mma
