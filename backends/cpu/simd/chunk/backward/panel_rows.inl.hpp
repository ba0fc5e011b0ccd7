// What else is done to panels: transposing them, writing their rows to tensors, sums over rows.
//
// Loops that store take their operands by value: of those by reference the compiler would have to
// read anew where they lie after each store.
#pragma once

#include "cpu/simd/vector/panels.inl.hpp"
#include "cpu/simd/vector/rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// One step of transposing a block in registers: exchanges lanes whose bit kBit is set of a row with
// those whose bit is clear of the row kBit further on.
template <int kBit, std::size_t... kIndex>
[[gnu::always_inline]] inline void exchange_lanes(F32& a, F32& b, std::index_sequence<kIndex...>) {
  const F32 low = __builtin_shufflevector(
      a, b, ((int(kIndex) & kBit) ? int(kIndex) - kBit + kLanes : int(kIndex))...);
  b = __builtin_shufflevector(
      a, b, ((int(kIndex) & kBit) ? int(kIndex) + kLanes : int(kIndex) + kBit)...);
  a = low;
}

template <int kBit = kLanes / 2>
[[gnu::always_inline]] inline void transpose_lanes(F32 (&block)[kLanes]) {
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    if ((r & kBit) == 0) {
      exchange_lanes<kBit>(block[r], block[r + kBit], std::make_index_sequence<kLanes>());
    }
  }
  if constexpr (kBit > 1) transpose_lanes<kBit / 2>(block);
}

// to[c, r] = from[r, c] for `rows` x `columns`, multiples of kPanelWidth.
[[gnu::noinline]] inline void transpose_panels(Panels from, std::int64_t rows, std::int64_t columns,
                                               Panels to) {
  for (std::int64_t column = 0; column < columns; column += kLanes) {
    for (std::int64_t row = 0; row < rows; row += kLanes) {
      F32 block[kLanes];
      const float* const source = from.at(row, column);
      float* const target = to.at(column, row);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) block[r] = load(source + r * kPanelWidth);
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) store(target + r * kPanelWidth, block[r]);
    }
  }
}

// to[r, c] = a[r, c] * b[r, c]; one panel follows the other in each of them.
[[gnu::noinline]] inline void multiply_elements(const float* a, const float* b, std::int64_t count,
                                                float* to) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(to + i, load(a + i) * load(b + i));
}

// Some tokens of a tensor, as rows of panels.
struct TokenRange {
  std::int64_t first = 0;    // of the tensor's tokens
  std::int64_t present = 0;  // how many there are
  std::int64_t chunk = 0;    // how many rows the panels have
  bool stream = false;       // rows are written past the caches where they begin at a cache line
};

// kPanelWidth channels of a token, of which `count` exist; the others are zero.
template <StorageType kType>
[[gnu::always_inline]] inline void widen_panel(const char* source, std::int64_t count,
                                               float (&target)[kPanelWidth]) {
  char padded[kPanelWidth * sizeof(float)] = {};
  copy_tail(source, count * size_of(kType), padded);
  for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
    store(target + lane, widen(kType, padded + lane * size_of(kType)));
  }
}

// Channels [channel, channel + kCount) of all tokens, whole panels.
template <StorageType kType, std::int64_t kCount>
[[gnu::always_inline]] inline void pack_columns(const InputRows& rows, const TokenRange& tokens,
                                                std::int64_t channel, F32 factor, Panels panels) {
  const char* source = rows.row(tokens.first) + channel * size_of(kType);
  for (std::int64_t t = 0; t < tokens.present; ++t) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kCount; i += kLanes) {
      store(panels.at(t, channel + i), widen(kType, source + i * size_of(kType)) * factor);
    }
    source += rows.step;
  }
}

// One cache line of all rows after the other, so that panels are written from end to end: what they
// are written to may lie beyond L2, and is fetched ahead then.
template <StorageType kType>
void pack_tokens(InputRows rows, TokenRange tokens, std::int64_t channels, float scale,
                 Panels panels) {
  constexpr std::int64_t kLine = 64 / size_of(kType);
  const F32 factor = broadcast(scale);
  std::int64_t done = 0;
  for (; channels - done >= kLine; done += kLine) {
    pack_columns<kType, kLine>(rows, tokens, done, factor, panels);
  }
  for (; channels - done >= kPanelWidth; done += kPanelWidth) {
    pack_columns<kType, kPanelWidth>(rows, tokens, done, factor, panels);
  }
  if (done == channels) return;
  for (std::int64_t t = 0; t < tokens.present; ++t) {
    alignas(64) float padded[kPanelWidth];
    widen_panel<kType>(rows.row(tokens.first + t) + done * size_of(kType), channels - done, padded);
    for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
      store(panels.at(t, done) + lane, load(padded + lane) * factor);
    }
  }
}

// Panels of `scale` times the rows of a tensor, zero for tokens and channels that do not exist and
// where there is no tensor.
[[gnu::noinline]] inline void pack_rows(const InputRows& rows, const TokenRange& tokens,
                                        std::int64_t channels, float scale, const Panels& panels) {
  const std::int64_t given = rows.data ? tokens.present : 0;
  for (std::int64_t i = 0; given < tokens.chunk && i < channels; i += kPanelWidth) {
    float* const missing = panels.at(given, i);
    float* const end = panels.at(0, i) + tokens.chunk * kPanelWidth;
    for (float* lane = missing; lane != end; lane += kLanes) store(lane, F32{});
  }
  if (given == 0) return;
  if (rows.type == StorageType::kF32) {
    pack_tokens<StorageType::kF32>(rows, tokens, channels, scale, panels);
  } else if (rows.type == StorageType::kBF16) {
    pack_tokens<StorageType::kBF16>(rows, tokens, channels, scale, panels);
  } else {
    pack_tokens<StorageType::kF16>(rows, tokens, channels, scale, panels);
  }
}

// Whole cache lines of a row, of `channels` at most, past the caches. Returns how many channels.
template <StorageType kType>
[[gnu::always_inline]] inline std::int64_t stream_panels(Panels panels, std::int64_t token,
                                                         std::int64_t channels, F32 factor,
                                                         char* target) {
  constexpr std::int64_t kLine = 64 / size_of(kType);
  std::int64_t done = 0;
  for (; channels - done >= kLine; done += kLine) {
    if constexpr (kType == StorageType::kF32) {
#pragma GCC unroll 4
      for (std::int64_t i = done; i < done + kLine; i += kLanes) {
        stream_vector(load(panels.at(token, i)) * factor, target + i * 4);
      }
    } else {
#pragma GCC unroll 4
      for (std::int64_t i = done; i < done + kLine; i += 2 * kLanes) {
        alignas(64) float pair[2 * kLanes];
        store(pair, load(panels.at(token, i)) * factor);
        store(pair + kLanes, load(panels.at(token, i + kLanes)) * factor);
        stream_vector(narrow_pair(kType, pair), target + i * 2);
      }
    }
  }
  return done;
}

template <StorageType kType>
void unpack_tokens(Panels panels, OutputRows rows, TokenRange tokens, std::int64_t channels,
                   float scale) {
  const F32 factor = broadcast(scale);
  for (std::int64_t t = 0; t < tokens.present; ++t) {
    char* target = rows.row(tokens.first + t);
    const float* source = panels.at(t, 0);
    std::int64_t left = channels;
    if (tokens.stream && reinterpret_cast<std::uintptr_t>(target) % 64 == 0) {
      const std::int64_t done = stream_panels<kType>(panels, t, channels, factor, target);
      left -= done;
      target += done * size_of(kType);
      source += done / kPanelWidth * panels.size;
    }
    for (; left >= kPanelWidth; left -= kPanelWidth) {
#pragma GCC unroll 4
      for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
        narrow(kType, load(source + lane) * factor, target + lane * size_of(kType));
      }
      target += kPanelWidth * size_of(kType);
      source += panels.size;
    }
    if (left == 0) continue;
    char padded[kPanelWidth * sizeof(float)];
    for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
      narrow(kType, load(source + lane) * factor, padded + lane * size_of(kType));
    }
    copy_tail(padded, left * size_of(kType), target);
  }
}

// `scale` times the panels, to the rows of a tensor.
[[gnu::noinline]] inline void unpack_rows(const Panels& panels, const OutputRows& rows,
                                          const TokenRange& tokens, std::int64_t channels,
                                          float scale) {
  if (rows.type == StorageType::kF32) {
    unpack_tokens<StorageType::kF32>(panels, rows, tokens, channels, scale);
  } else if (rows.type == StorageType::kBF16) {
    unpack_tokens<StorageType::kBF16>(panels, rows, tokens, channels, scale);
  } else {
    unpack_tokens<StorageType::kF16>(panels, rows, tokens, channels, scale);
  }
}

// to[t, :] = factors[t] from[t, :]
[[gnu::noinline]] inline void scale_rows(const Panels& from, const float* factors,
                                         std::int64_t rows, std::int64_t columns,
                                         const Panels& to) {
  const float* source = from.data;
  float* target = to.data;
  for (std::int64_t i = 0; i < columns; i += kPanelWidth) {
    for (std::int64_t t = 0; t < rows; ++t) {
      const F32 factor = broadcast(factors[t]);
#pragma GCC unroll 4
      for (std::int64_t lane = t * kPanelWidth; lane < (t + 1) * kPanelWidth; lane += kLanes) {
        store(target + lane, load(source + lane) * factor);
      }
    }
    source += from.size;
    target += to.size;
  }
}

// sums[t] = sum_i a[t, i] b[t, i] for kPanelWidth tokens.
[[gnu::noinline]] inline void dot_panel_rows(const Panels& a, const Panels& b,
                                             std::int64_t channels, float* sums) {
  F32 partial[kPanelWidth] = {};
  for (std::int64_t i = 0; i < channels; i += kPanelWidth) {
#pragma GCC unroll 16
    for (std::int64_t t = 0; t < kPanelWidth; ++t) {
#pragma GCC unroll 4
      for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
        partial[t] = fma(load(a.at(t, i) + lane), load(b.at(t, i) + lane), partial[t]);
      }
    }
  }
  sum_lanes<kPanelWidth>(partial, sums);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
