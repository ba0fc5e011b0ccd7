// Fetches the rows of coming tokens, one row at a time.
//
// A core keeps some sixteen misses in flight; asked for many more at once it stalls, and what it
// then waits for is not what it needs next. So the rows are spread over the arithmetic of the pass
// before.
#pragma once

#include "rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

class Prefetcher {
 public:
  /// Fetches from token `first` on. 0 for not at all.
  explicit Prefetcher(std::int64_t first) : token_(first) {}

  /// As one that was just made. In place: a copy would wait for what it copies to be written.
  void restart(std::int64_t first) {
    count_ = current_ = 0;
    token_ = first;
    end_ = 0;
    done_ = 0;
  }

  /// At most kMaxStreams times.
  template <class Byte>
  void add(const Rows<Byte>& rows, std::int64_t elements) {
    if (!rows.data) return;
    streams_[count_++] = {rows.data, token_ * rows.step, rows.step, elements * size_of(rows.type)};
  }

  std::int64_t rows_per_token() const { return count_; }

  std::int64_t lines_per_token() const {
    std::int64_t lines = 0;
    for (int i = 0; i < count_; ++i) lines += (streams_[i].bytes + kCacheLine - 1) / kCacheLine;
    return lines;
  }

  /// Tokens before `end` may be fetched from now on.
  void allow_until(std::int64_t end) { end_ = end; }

  /// `kLocality` as of __builtin_prefetch: 3 into all caches, 2 into L2 and beyond. Rows of a
  /// power of two apart fall into a few sets of L1, which hold no more than some of them.
  template <int kLocality = 3>
  [[gnu::always_inline]] void fetch_rows(std::int64_t rows) {
    for (; rows > 0 && token_ < end_; --rows) {
      Stream& stream = streams_[current_];
      const char* row = stream.data + stream.offset;
      for (std::int64_t i = 0; i < stream.bytes; i += kCacheLine) {
        __builtin_prefetch(row + i, 0, kLocality);
      }
      next_row();
    }
  }

  /// The same by lines rather than rows, for callers that keep a core's misses as far apart as they
  /// can. One does not ask for both.
  template <int kLocality = 3>
  [[gnu::always_inline]] void fetch_lines(std::int64_t lines) {
    while (lines > 0 && token_ < end_) {
      const Stream& stream = streams_[current_];
      const char* row = stream.data + stream.offset;
      std::int64_t i = done_;
      for (; lines > 0 && i < stream.bytes; --lines, i += kCacheLine) {
        __builtin_prefetch(row + i, 0, kLocality);
      }
      done_ = i;
      if (i < stream.bytes) return;
      done_ = 0;
      next_row();
    }
  }

 private:
  static constexpr std::int64_t kCacheLine = 64;
  static constexpr int kMaxStreams = 10;  // q, k, v, do, gk, gv, dk, dv, dgk, dgv
  struct Stream {
    const char* data;
    std::int64_t offset;  // of the next row, in bytes as the others
    std::int64_t step;
    std::int64_t bytes;
  };

  [[gnu::always_inline]] void next_row() {
    Stream& stream = streams_[current_];
    stream.offset += stream.step;
    if (++current_ < count_) return;
    current_ = 0;
    ++token_;
  }

  Stream streams_[kMaxStreams];  // the first count_ of them
  int count_ = 0;
  int current_ = 0;
  std::int64_t token_ = 0;
  std::int64_t end_ = 0;
  std::int64_t done_ = 0;  // bytes of the current row, where it is fetched by lines
};

// ---- the rows of a chunk ----
//
// Fetches the rows of the next chunk, a few cache lines at a time, while the products of this one
// run.
//
// A core keeps some sixteen misses in flight; asked for more at once it stalls, products and all.
// So lines are listed beforehand and products fetch a few of them at each of their steps.

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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
