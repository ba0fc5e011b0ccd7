// A problem that is written as text is the one that a call on dense tensors of its sizes has, so
// that what is tuned ahead of time is found; and one that leaves out its outputs, as a plan does,
// is the one that has them.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "attention/attention_rules.hpp"
#include "decode/decode_rules.hpp"

namespace attune::ops {
namespace {

using AttentionProblem = RecurrentAttentionProblem;
using DecodeProblem = RecurrentDecodeProblem;

/// Dense tensors, each aligned, apart from all others, and nowhere: only shapes are looked at.
class Nowhere {
 public:
  TensorView dense(DType dtype, const Extents& shape) {
    next_ += std::uintptr_t{1} << 20;
    return {reinterpret_cast<void*>(next_), dtype, shape};
  }

 private:
  std::uintptr_t next_ = 0;
};

DecodeProblem problem_of_call(const DecodeProblem& p, bool with_o) {
  Nowhere memory;
  const ConstTensorView q = memory.dense(p.dtype, {p.B, p.H, p.K});
  const ConstTensorView k = memory.dense(p.dtype, {p.B, p.Hkv, p.K});
  const ConstTensorView v = memory.dense(p.dtype, {p.B, p.Hkv, p.V});
  const TensorView state = memory.dense(DType::kF32, {p.S, p.H, p.K, p.V});
  const TensorView o = memory.dense(p.dtype, {p.B, p.H, p.V});
  const ConstTensorView slots = memory.dense(DType::kI64, {p.B});
  DecodeCall call;
  call.args.q = q;
  call.args.k = k;
  call.args.v = v;
  call.args.state = state;
  call.args.o = o;
  if (p.slots) call.args.slot_indices = slots;
  call.rules.allow_tf32 = p.tf32;
  OperandCall checked(call.rules, call.args, CheckLevel::kMetadata);
  return with_o ? checked.complete() : checked.without_outputs();
}

TEST(ProblemOfACall, OfDecodeIsItsTexts) {
  int several = 0;
  for (const std::int64_t batch : {0, 1, 2, 3}) {
    for (const std::int64_t spare : {0, 1}) {
      for (const std::int64_t heads : {1, 2, 4}) {
        for (const std::int64_t keys : {1, 2, 3, 4, 8, 16}) {
          for (const std::int64_t values : {1, 2, 3, 4, 8, 16}) {
            for (const DType dtype : {DType::kF32, DType::kBF16}) {
              DecodeProblem problem;
              problem.B = batch;
              problem.S = batch + spare;
              problem.H = heads;
              problem.Hkv = heads == 4 ? 2 : 1;
              problem.K = keys;
              problem.V = values;
              problem.dtype = dtype;
              problem.slots = spare == 1;
              problem.tf32 = keys == 16;
              RecurrentDecode::complete(problem);
              ASSERT_EQ(problem_of_call(problem, true), problem)
                  << problem_text<RecurrentDecode>(problem);
              ASSERT_EQ(problem_of_call(problem, false), problem)
                  << problem_text<RecurrentDecode>(problem);
              several += problem.aligned ? 0 : 1;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(several, 100);
}

/// As the caller has it: [B, T, H, D], stored [B, H, T, D] where the problem says so.
TensorView tokens(Nowhere& memory, const AttentionProblem& p, std::int64_t heads,
                  std::int64_t channels) {
  if (p.layout != Layout::kBhtd) return memory.dense(p.dtype, {p.B, p.T, heads, channels});
  return memory.dense(p.dtype, {p.B, heads, p.T, channels}).permute({0, 2, 1, 3});
}

AttentionProblem problem_of_call(const AttentionProblem& p, bool with_o) {
  Nowhere memory;
  const ConstTensorView q = tokens(memory, p, p.H, p.K);
  const ConstTensorView k = tokens(memory, p, p.Hkv, p.K);
  const ConstTensorView v = tokens(memory, p, p.Hkv, p.V);
  const TensorView o = tokens(memory, p, p.H, p.V);
  const ConstTensorView bounds = memory.dense(DType::kI64, {p.N + 1});
  const ConstTensorView h0 = memory.dense(DType::kF32, {p.sequences(), p.H, p.K, p.V});
  const TensorView ht = memory.dense(DType::kF32, {p.sequences(), p.H, p.K, p.V});
  AttentionCall<RecurrentAttention> call;
  call.args.q = q;
  call.args.k = k;
  call.args.v = v;
  if (p.N > 0) call.args.cu_seqlens = bounds;
  if (p.h0) call.args.initial_state = h0;
  call.rules.reverse = p.reverse;
  call.rules.allow_tf32 = p.tf32;
  call.rules.want_final_state = p.ht;
  OperandCall checked(call.rules, call.args, CheckLevel::kMetadata);
  if (!with_o) return checked.without_outputs();
  call.args.o = o;
  if (p.ht) call.args.final_state = ht;
  return checked.complete();
}

TEST(ProblemOfACall, OfAttentionIsItsTexts) {
  int unaligned = 0;
  int transposed = 0;
  for (const std::int64_t batch : {0, 1, 2}) {
    for (const std::int64_t length : {0, 1, 2, 5}) {
      for (const std::int64_t heads : {1, 2, 4}) {
        for (const std::int64_t keys : {1, 3, 4, 8}) {
          for (const std::int64_t values : {1, 3, 4, 8}) {
            for (const DType dtype : {DType::kF32, DType::kBF16}) {
              for (const Layout layout : {Layout::kBthd, Layout::kBhtd}) {
                AttentionProblem problem;
                problem.B = batch;
                problem.T = length;
                problem.H = heads;
                problem.Hkv = heads;
                problem.K = keys;
                problem.V = values;
                problem.N = batch == 1 && keys == 4 ? 2 : 0;
                problem.dtype = dtype;
                problem.layout = layout;
                problem.h0 = values == 3;
                problem.ht = values == 4;
                problem.reverse = keys == 3;
                problem.tf32 = keys == 8;
                RecurrentAttention::complete(problem);
                ASSERT_EQ(problem_of_call(problem, true), problem)
                    << problem_text<RecurrentAttention>(problem);
                // What it allocates itself is dense.
                if (problem.layout == Layout::kBthd) {
                  ASSERT_EQ(problem_of_call(problem, false), problem)
                      << problem_text<RecurrentAttention>(problem);
                }
                unaligned += problem.aligned ? 0 : 1;
                transposed += problem.layout == Layout::kBhtd ? 1 : 0;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(unaligned, 100);
  EXPECT_GT(transposed, 100);
}

TEST(ProblemOfACall, AlignmentOfATextIsKeptWhereTheLayoutIsNotDense) {
  for (const bool aligned : {false, true}) {
    DecodeProblem decode;
    decode.B = 2;
    decode.K = decode.V = 3;
    decode.layout = Layout::kStrided;
    decode.aligned = aligned;
    RecurrentDecode::complete(decode);
    EXPECT_EQ(decode.aligned, aligned);
    AttentionProblem attention;
    attention.T = 2;
    attention.K = attention.V = 3;
    attention.layout = Layout::kStrided;
    attention.aligned = aligned;
    RecurrentAttention::complete(attention);
    EXPECT_EQ(attention.aligned, aligned);
  }
}

TEST(ProblemOfACall, ATextMaySayThatDenseTensorsAreNotAligned) {
  DecodeProblem decode;
  decode.B = 2;
  decode.K = decode.V = 8;
  decode.aligned = false;
  RecurrentDecode::complete(decode);
  EXPECT_FALSE(decode.aligned);
  AttentionProblem attention;
  attention.T = 2;
  attention.K = attention.V = 8;
  attention.aligned = false;
  RecurrentAttention::complete(attention);
  EXPECT_FALSE(attention.aligned);
}

TEST(ProblemOfACall, OfNothingHasOneSpelling) {
  for (const std::int64_t batch : {0, 2}) {
    AttentionProblem attention;
    attention.B = batch;
    attention.T = batch == 0 ? 5 : 0;
    attention.K = attention.V = 3;
    attention.layout = Layout::kStrided;
    attention.aligned = false;
    RecurrentAttention::complete(attention);
    EXPECT_EQ(attention.layout, Layout::kBthd);
    EXPECT_TRUE(attention.aligned);
  }
  for (const std::int64_t slots : {0, 2}) {
    DecodeProblem decode;
    decode.B = 0;
    decode.S = slots;
    decode.K = decode.V = 8;
    decode.layout = Layout::kStrided;
    decode.aligned = false;
    RecurrentDecode::complete(decode);
    EXPECT_EQ(decode.layout, slots == 0 ? Layout::kBthd : Layout::kStrided)
        << "a pool is there also where no row uses it";
    EXPECT_EQ(decode.aligned, slots == 0);
  }
}

TEST(ProblemOfACall, APoolStoredTransposedIsAlignedWhereItsRowsAre) {
  for (const std::int64_t keys : {3, 4}) {
    Nowhere memory;
    const ConstTensorView q = memory.dense(DType::kF32, {1, 1, keys});
    const ConstTensorView v = memory.dense(DType::kF32, {1, 1, 4});
    const TensorView state = memory.dense(DType::kF32, {1, 1, 4, keys}).permute({0, 1, 3, 2});
    RecurrentDecodeArgs args;
    args.q = args.k = q;
    args.v = v;
    args.state = state;
    const DecodeProblem problem =
        OperandCall(DecodeRules(), args, CheckLevel::kMetadata).without_outputs();
    EXPECT_EQ(problem.layout, Layout::kStrided);
    EXPECT_EQ(problem.aligned, keys == 4);
  }
}

}  // namespace
}  // namespace attune::ops
