// Rows that come and go while a matrix is passed over: what is read next is fetched, and gradients are written
// past the caches, a few at a time.
//
// A core keeps some sixteen lines on their way to memory in flight. All rows of a pass at once are
// several times as many, and whatever comes next would wait for them. So they are written while the
// next pass computes.
#pragma once

#include "cpu/simd/vector/prefetch.inl.hpp"
#include "cpu/simd/vector/rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

class PendingRows {
 public:
  std::int64_t count() const { return count_ - next_; }

  /// At most kMaxRows before all of them are written. `row` stays as it is until then; `target` is
  /// aligned to whole vectors.
  void add(const float* row, std::int64_t vectors, char* target) {
    if (next_ == count_) next_ = count_ = 0;
    rows_[count_++] = {row, target, vectors};
  }

  [[gnu::always_inline]] void write(std::int64_t rows) {
    for (; rows > 0 && next_ < count_; --rows) {
      const Row& row = rows_[next_++];
      for (std::int64_t i = 0; i < row.vectors; ++i) {
        stream_vector(load(row.source + i * kLanes), row.target + i * std::int64_t{sizeof(F32)});
      }
    }
  }

 private:
  static constexpr int kMaxRows = 16;  // of four tokens: dk, dv, dgk, dgv
  struct Row {
    const float* source;
    char* target;
    std::int64_t vectors;
  };
  Row rows_[kMaxRows];  // from next_ to count_
  std::int64_t next_ = 0;
  std::int64_t count_ = 0;
};

// Rows of the caller's tensors that come and go while a matrix is passed over. They are fetched by
// lines where the matrix does not fit the first-level cache: its own lines come through the same
// few buffers, which whole rows would fill.
struct RowTraffic {
  Prefetcher fetched;
  PendingRows pending;
  // In each step of read_and_update(), and the lines in those of read_by_columns() too.
  std::int64_t fetched_rows = 0;
  std::int64_t fetched_lines = 0;
  std::int64_t pending_rows = 0;

  [[gnu::always_inline]] void step() {
    if (fetched_lines > 0) {
      fetched.fetch_lines<2>(fetched_lines);
    } else {
      fetched.fetch_rows<2>(fetched_rows);
    }
    pending.write(pending_rows);
  }
};

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
