// What serving engines ask for, through attune.h: pools of states, snapshots, several tokens a
// step.
#include "bindings/c/small_call.hpp"

namespace attune::test {
namespace {

TEST(CServing, StatesGoToTheirSlotsOfAPool) {
  SmallCall small({2, 130, 2, 16});
  Tensor pool = small.random({5, 2, 16, 16}), expected_pool = copy_of(pool.view());
  Tensor from = Tensor::of(std::vector<std::int32_t>{4, -1}, {2});
  Tensor to = Tensor::of(std::vector<std::int32_t>{0, 1}, {2});
  Tensor snapshots = Tensor::of(std::vector<std::int32_t>{2, -1, 3, -1}, {2, 2});
  const CTensor pool_c(pool), from_c(from), to_c(to), snapshots_c(snapshots);
  small.args.final_state = nullptr;
  small.args.states = pool_c;
  small.args.initial_slots = from_c;
  small.args.final_slots = to_c;
  small.args.snapshot_slots = snapshots_c;
  small.args.snapshot_every = 64;
  ASSERT_EQ(attune_attention(&small.args, &small.call), ATTUNE_OK) << attune_last_error();
  const auto expected = ops::recurrent_attention(small.q, small.k, small.v,
                                                 {.g = ConstTensorView(small.g),
                                                  .states = expected_pool.view(),
                                                  .initial_slots = ConstTensorView(from),
                                                  .final_slots = ConstTensorView(to),
                                                  .snapshot_every = 64,
                                                  .snapshot_slots = ConstTensorView(snapshots),
                                                  .call = {.context = &heuristic_context()}});
  EXPECT_EQ(values_of(small.o), values_of(expected.o));
  EXPECT_EQ(values_of(pool), values_of(expected_pool));
}

TEST(CServing, CommittedTokensAreTakenBeforeNewOnes) {
  RandomTensors random(5);
  const Extents rows{2, 3, 2, 16};
  Tensor q = random(rows), k = random(rows), v = random(rows), o(DType::kF32, rows);
  Tensor last_k = random(rows), last_v = random(rows);
  Tensor accepted = Tensor::of(std::vector<std::int32_t>{2, 0}, {2});
  Tensor state = random({2, 2, 16, 16}, DType::kBF16), expected_state = copy_of(state.view());
  const CTensor q_c(q), k_c(k), v_c(v), o_c(o), state_c(state);
  const CTensor last_k_c(last_k), last_v_c(last_v), accepted_c(accepted);
  auto args = sized<attune_decode_args>();
  args.flags = ATTUNE_STOCHASTIC_STATES;
  args.state_seed = 9;
  args.q = q_c;
  args.k = k_c;
  args.v = v_c;
  args.state = state_c;
  args.o = o_c;
  args.committed_k = last_k_c;
  args.committed_v = last_v_c;
  const UniqueContext context = make_c_context("heuristic");
  auto call = sized<attune_call>();
  call.context = context.get();
  EXPECT_EQ(attune_decode(&args, &call), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "recurrent_decode: committed.accepted: not given (NULL)");
  args.committed_accepted = accepted_c;
  ASSERT_EQ(attune_decode(&args, &call), ATTUNE_OK) << attune_last_error();
  const Tensor expected = ops::recurrent_decode(
      q, k, v, expected_state,
      {.committed = ops::CommittedTokens{.k = last_k, .v = last_v, .accepted = accepted},
       .state_rounding = stochastic(9),
       .call = {.context = &heuristic_context()}});
  EXPECT_EQ(values_of(o), values_of(expected));
  EXPECT_EQ(values_of(state), values_of(expected_state));
}

TEST(CServing, KeptStatesAreWhereTheNextStepStarts) {
  RandomTensors random(6);
  const Extents rows{1, 2, 2, 16};
  Tensor q = random(rows), k = random(rows), v = random(rows), o(DType::kF32, rows);
  Tensor state = random({3, 2, 16, 16}), expected_state = copy_of(state.view());
  Tensor kept = Tensor::of(std::vector<std::int64_t>{2, 0}, {1, 2});
  Tensor accepted = Tensor::of(std::vector<std::int64_t>{1}, {1});
  const CTensor q_c(q), k_c(k), v_c(v), o_c(o), state_c(state), kept_c(kept), accepted_c(accepted);
  auto args = sized<attune_decode_args>();
  args.q = q_c;
  args.k = k_c;
  args.v = v_c;
  args.state = state_c;
  args.o = o_c;
  args.kept_slots = kept_c;
  args.accepted = accepted_c;
  const UniqueContext context = make_c_context("heuristic");
  auto call = sized<attune_call>();
  call.context = context.get();
  ASSERT_EQ(attune_decode(&args, &call), ATTUNE_OK) << attune_last_error();
  const Tensor expected = ops::recurrent_decode(q, k, v, expected_state,
                                                {.kept_slots = ConstTensorView(kept),
                                                 .accepted = ConstTensorView(accepted),
                                                 .call = {.context = &heuristic_context()}});
  EXPECT_EQ(values_of(o), values_of(expected));
  EXPECT_EQ(values_of(state), values_of(expected_state));
}

}  // namespace
}  // namespace attune::test
