// Fetches the rows of coming tokens, one row at a time.
//
// A core keeps some sixteen misses in flight; asked for many more at once it stalls, and what it
// then waits for is not what it needs next. So the rows are spread over the arithmetic of the pass
// before.
#pragma once

#include "cpu/simd/rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
