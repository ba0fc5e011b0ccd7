// Fetches the rows of the next chunk, a few cache lines at a time, while the products of this one
// run.
//
// A core keeps some sixteen misses in flight; asked for more at once it stalls, products and all.
// So lines are listed beforehand and products fetch a few of them at each of their steps.
#pragma once

#include "cpu/simd/rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// Which lines are fetched next, and how many at each step. Nothing when the count is 0.
struct LineFetcher {
  const char* const* next = nullptr;
  const char* const* end = nullptr;
  std::int64_t lines_per_step = 0;
};

[[gnu::always_inline]] inline const char* const* fetch_lines(const char* const* next,
                                                             const char* const* end) {
#pragma GCC unroll 1
  for (; next != end; ++next) __builtin_prefetch(*next);
  return next;
}

class FetchList {
 public:
  /// `lines` takes kMaxLines. The list begins with the chunk at `token`.
  FetchList(const char** lines, std::int64_t token, std::int64_t chunk)
      : lines_(lines), token_(token), chunk_(chunk) {}

  /// The rows of a tensor at the tokens of a chunk; as many as there is room for.
  template <class Byte>
  void add(const Rows<Byte>& rows, std::int64_t elements) {
    if (!rows.data || streams_ == kMaxStreams) return;
    const std::int64_t bytes = elements * size_of(rows.type);
    const std::int64_t first = count_;
    for (std::int64_t t = 0; t < chunk_; ++t) {
      for (std::int64_t i = 0; i < bytes && count_ < kMaxLines; i += kCacheLine) {
        lines_[count_++] = rows.data + (token_ + t) * rows.step + i;
      }
    }
    stream_[streams_++] = {first, count_, chunk_ * rows.step};
  }

  /// The lines listed, to be fetched in `steps`; the list then moves on by a chunk.
  LineFetcher fetcher(std::int64_t steps) const {
    return {.next = lines_, .end = lines_ + count_, .lines_per_step = (count_ + steps - 1) / steps};
  }

  void next_chunk() {
    for (int s = 0; s < streams_; ++s) {
      const Stream stream = stream_[s];
      for (std::int64_t i = stream.first; i < stream.end; ++i) lines_[i] += stream.step;
    }
  }

  static constexpr std::int64_t kMaxLines = 2048;

 private:
  static constexpr std::int64_t kCacheLine = 64;
  static constexpr int kMaxStreams = 7;  // q, k, gk, v, gv, o, g
  struct Stream {
    std::int64_t first = 0, end = 0, step = 0;
  };
  const char** lines_;
  std::int64_t token_, chunk_;
  std::int64_t count_ = 0;
  int streams_ = 0;
  Stream stream_[kMaxStreams];
};

// The rows of a chunk of a forward kernel. A streamed o is not fetched.
template <class Keys, class Values>
FetchList fetch_list(const Keys& keys, const Values& values, bool stream, std::int64_t chunk,
                     const char** lines) {
  FetchList list(lines, chunk, chunk);
  list.add(keys.q.rows, keys.channels);
  list.add(keys.k.rows, keys.channels);
  list.add(keys.gk.rows, keys.channels);
  list.add(values.v.rows, values.columns);
  list.add(values.gv.rows, values.columns);
  if (!stream) list.add(values.o, values.columns);
  return list;
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
