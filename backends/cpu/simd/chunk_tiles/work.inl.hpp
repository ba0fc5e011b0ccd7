// Work for the vector units that runs between the products of tile registers.
//
// Nothing retires before an unfinished product, and registers for some hundred and fifty vectors
// are all that may wait behind it. So one product after the other and then all of the vector work
// take as long as both by themselves, and a few instructions after every second product take
// nothing. Two rules follow from the same limit: a tile that was stored by vectors is not loaded
// before the products after it were issued, as stores wait for the products before them; and a sum
// is stored some work after its last product, as what waits to be stored stops everything behind.
#pragma once

#include "cpu/simd/vector/prefetch.inl.hpp"
#include "registers.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// Some fifty instructions, `count` times; `context` must live until all are done.
struct TileWork {
  void (*run)(const void* context, std::int64_t index) = nullptr;
  const void* context = nullptr;
  std::int64_t count = 0;
};

// Calls `Body::run_part(index)`.
template <class Body>
TileWork tile_work(const Body& body, std::int64_t count) {
  return {.run = [](const void* context,
                    std::int64_t index) { static_cast<const Body*>(context)->run_part(index); },
          .context = &body,
          .count = count};
}

// In the order in which it was added; at most kMax while any of it is left to do.
class TileWorkQueue {
 public:
  void add(const TileWork& work) {
    if (first_ == end_) first_ = end_ = 0;
    work_[end_++] = work;
  }

  // Returns whether there was anything to do.
  bool run_one() {
    while (first_ != end_) {
      const TileWork& work = work_[first_];
      if (done_ < work.count) {
        work.run(work.context, done_++);
        return true;
      }
      ++first_;
      done_ = 0;
    }
    return false;
  }

  void run_all() {
    while (run_one()) {
    }
  }

 private:
  static constexpr int kMax = 8;
  TileWork work_[kMax];
  int first_ = 0;
  int end_ = 0;
  std::int64_t done_ = 0;  // parts of the first
};

// What there is to do beside the products of a chunk: what results wait for, what the next products
// need, and lines of the next chunk to be fetched.
struct BesideProducts {
  TileWorkQueue results;
  TileWorkQueue operands;
  LineFetcher fetcher;

  [[gnu::noinline]] void operator()() {
    const char* const* const until = fetcher.end - fetcher.next < fetcher.lines_per_step
                                         ? fetcher.end
                                         : fetcher.next + fetcher.lines_per_step;
    // Into the second-level cache: the first one is full.
#pragma GCC unroll 1
    for (; fetcher.next != until; ++fetcher.next) __builtin_prefetch(*fetcher.next, 0, 2);
    if (!results.run_one()) operands.run_one();
  }
};

// Accumulators kC and kC + 1 += a tile of A times two of B, which stay in tiles 6 and 7.
template <int kC>
[[gnu::always_inline]] inline void multiply_row(const float* a, const float* b,
                                                std::int64_t b_step) {
  load_tile<6>(b);
  load_tile<4>(a);
  multiply_tiles<kC, 4, 6>();
  load_tile<7>(b + b_step);
  multiply_tiles<kC + 1, 4, 7>();
}

// Accumulators += A B as add_block<2>() has it, with something done beside it.
[[gnu::always_inline]] inline void add_block_beside(const TileMatrix& a, std::int64_t i,
                                                    const TileMatrix& b, std::int64_t j,
                                                    std::int64_t depth, BesideProducts& beside) {
  const float* from_a = a.at(i, 0);
  const float* from_b = b.at(j, 0);
  const std::int64_t a_step = a.across * kTileFloats;
  const std::int64_t b_step = b.across * kTileFloats;
#pragma GCC unroll 1
  for (const float* const end = from_a + depth * kTileFloats; from_a != end;) {
    multiply_row<0>(from_a, from_b, b_step);
    beside();
    load_tile<5>(from_a + a_step);
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
    beside();
    from_a += kTileFloats;
    from_b += kTileFloats;
  }
}

// Accumulators kC and kC + 1 += one row of A's tiles times two of B's columns.
template <int kC>
[[gnu::always_inline]] inline void add_row_beside(const TileMatrix& a, std::int64_t i,
                                                  const TileMatrix& b, std::int64_t j,
                                                  std::int64_t depth, BesideProducts& beside) {
  const float* from_a = a.at(i, 0);
  const float* from_b = b.at(j, 0);
  const std::int64_t b_step = b.across * kTileFloats;
#pragma GCC unroll 1
  for (const float* const end = from_a + depth * kTileFloats; from_a != end;) {
    multiply_row<kC>(from_a, from_b, b_step);
    beside();
    from_a += kTileFloats;
    from_b += kTileFloats;
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
