// Rows of gradients on their way past the caches, a few at a time.
//
// A core keeps some sixteen lines on their way to memory in flight. All rows of a pass at once are
// several times as many, and whatever comes next would wait for them. So they are written while the
// next pass computes.
#pragma once

#include "cpu/simd/chunk/output_rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

class PendingRows {
 public:
  std::int64_t count() const { return count_ - next_; }

  /// At most kMostRows before all of them are written. `row` stays as it is until then; `target` is
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
  static constexpr int kMostRows = 16;  // of four tokens: dk, dv, dgk, dgv
  struct Row {
    const float* source;
    char* target;
    std::int64_t vectors;
  };
  Row rows_[kMostRows];  // from next_ to count_
  std::int64_t next_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
