// Plans, and the scratch memory of calls.
#include <cstdlib>
#include <vector>

#include "bindings/c/small_call.hpp"
#include "support/allocation_count.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using UniquePlan = std::unique_ptr<attune_plan, decltype(&attune_plan_destroy)>;

/// Aligned memory, and an allocator that hands it out.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : memory_(bytes + 64) {}
  void* at(std::size_t bytes_behind = 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64 + bytes_behind;
  }

  static void* allocate(void* user, std::size_t bytes, attune_device device, void* stream) {
    auto* self = static_cast<Scratch*>(user);
    ++self->allocations;
    self->asked = bytes;
    EXPECT_EQ(device.type, ATTUNE_CPU);
    EXPECT_EQ(stream, nullptr);
    return bytes + self->behind > self->memory_.size() - 64 ? nullptr : self->at(self->behind);
  }
  static void release(void* user, void* memory) {
    auto* self = static_cast<Scratch*>(user);
    EXPECT_EQ(memory, self->at(self->behind));
    ++self->releases;
  }

  int allocations = 0;
  int releases = 0;
  std::size_t asked = 0;
  std::size_t behind = 0;  // of a multiple of 64

 private:
  std::vector<std::byte> memory_;
};

/// A backward call, whose kernels need scratch memory.
class CPlans : public testing::Test {
 protected:
  CPlans() {
    grads.d_o = d_o_c;
    grads.dq = dq_c;
    grads.dk = dk_c;
    grads.dv = dv_c;
    grads.dg = dg_c;
  }

  UniquePlan plan() {
    attune_plan* made = nullptr;
    EXPECT_EQ(attune_attention_backward_plan(&small.args, &grads, &small.call, &made), ATTUNE_OK)
        << attune_last_error();
    return {made, attune_plan_destroy};
  }
  attune_status run() { return attune_attention_backward(&small.args, &grads, &small.call); }
  attune_status launch(const UniquePlan& of, void* workspace, std::size_t bytes) {
    return attune_attention_backward_launch(of.get(), &small.args, &grads, nullptr, workspace,
                                            bytes);
  }
  std::vector<double> expected_dq() const {
    const auto gradients = ops::recurrent_attention_backward(
        small.q, small.k, small.v, {.d_o = ConstTensorView(d_o)},
        {.g = ConstTensorView(small.g), .call = {.context = &heuristic_context()}});
    return values_of(gradients.dq);
  }

  SmallCall small{{2, 300, 2, 32}};
  Tensor d_o = small.random(small.rows_);
  Tensor dq{DType::kF32, small.rows_}, dk{DType::kF32, small.rows_}, dv{DType::kF32, small.rows_};
  Tensor dg{DType::kF32, small.g.shape()};
  CTensor d_o_c{d_o}, dq_c{dq}, dk_c{dk}, dv_c{dv}, dg_c{dg};
  attune_attention_grads grads = sized<attune_attention_grads>();
};

TEST_F(CPlans, ALaunchHasTheResultOfACall) {
  const UniquePlan backward = plan();
  const std::size_t bytes = attune_plan_workspace_bytes(backward.get());
  ASSERT_GT(bytes, 0U);
  Scratch scratch(bytes);
  ASSERT_EQ(launch(backward, scratch.at(), bytes), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(dq), expected_dq());
}

TEST_F(CPlans, LaunchesAllocateNothing) {
  attune_plan* made = nullptr;
  ASSERT_EQ(attune_attention_plan(&small.args, &small.call, &made), ATTUNE_OK);
  const UniquePlan forward(made, attune_plan_destroy);
  Scratch scratch(attune_plan_workspace_bytes(made));
  const auto run_plan = [&] {
    return attune_attention_launch(made, &small.args, nullptr, scratch.at(),
                                   attune_plan_workspace_bytes(made));
  };
  ASSERT_EQ(run_plan(), ATTUNE_OK) << attune_last_error();
  const std::size_t before = allocation_count();
  ASSERT_EQ(run_plan(), ATTUNE_OK);
  EXPECT_EQ(allocation_count(), before);
}

TEST_F(CPlans, TheirConfigIsAnOverride) {
  const UniquePlan backward = plan();
  const std::string config = attune_plan_config(backward.get());
  EXPECT_THAT(config, testing::StartsWith("kernel="));
  small.call.config = config.c_str();
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(dq), expected_dq());
}

TEST_F(CPlans, TheyKeepTheirContextAlive) {
  const UniquePlan backward = plan();
  small.context.reset();
  const std::size_t bytes = attune_plan_workspace_bytes(backward.get());
  Scratch scratch(bytes);
  EXPECT_EQ(launch(backward, scratch.at(), bytes), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(dq), expected_dq());
}

TEST_F(CPlans, ALaunchOfSomethingElseIsRefused) {
  const UniquePlan backward = plan();
  EXPECT_EQ(attune_attention_launch(backward.get(), &small.args, nullptr, nullptr, 0),
            ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(),
               "plan: is one of recurrent_attention.backward, expected one of recurrent_attention");
  const std::size_t bytes = attune_plan_workspace_bytes(backward.get());
  Scratch scratch(bytes);
  EXPECT_EQ(launch(backward, scratch.at(), bytes - 1), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("workspace has"));
  EXPECT_EQ(launch(backward, scratch.at(4), bytes), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(launch(backward, nullptr, bytes), ATTUNE_INVALID_ARGUMENT);
  small.args.flags = ATTUNE_REVERSE;
  EXPECT_EQ(launch(backward, scratch.at(), bytes), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("flags have ATTUNE_REVERSE, unlike the plan's"));
  small.args.flags = 0;
  small.args.g = nullptr;
  grads.dg = nullptr;
  EXPECT_EQ(launch(backward, scratch.at(), bytes), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("gate"));
}

TEST_F(CPlans, TheyAreMadeWithoutMemory) {
  for (CTensor* tensor : {&small.q_c, &small.k_c, &small.v_c, &small.g_c, &d_o_c}) {
    (*tensor)->data = nullptr;
  }
  const UniquePlan backward = plan();
  EXPECT_GT(attune_plan_workspace_bytes(backward.get()), 0U);
}

TEST_F(CPlans, LaunchesWriteOutputsAsTheyWereWhenThePlanWasMade) {
  // o as [B, H, T, V], and a state of 16 bits from none.
  Tensor wide(DType::kF32, {2, 2, 300, 32}), narrow(DType::kBF16, small.states);
  const CTensor permuted(ConstTensorView(wide.view()).permute({0, 2, 1, 3})), state(narrow);
  small.args.o = permuted;
  small.args.final_state = state;
  attune_plan* made = nullptr;
  ASSERT_EQ(attune_attention_plan(&small.args, &small.call, &made), ATTUNE_OK)
      << attune_last_error();
  const UniquePlan forward(made, attune_plan_destroy);
  Scratch scratch(attune_plan_workspace_bytes(made));
  ASSERT_EQ(attune_attention_launch(made, &small.args, nullptr, scratch.at(),
                                    attune_plan_workspace_bytes(made)),
            ATTUNE_OK)
      << attune_last_error();
  const auto expected = small.expected();
  const std::vector<double> o = to_doubles(ConstTensorView(wide.view()).permute({0, 2, 1, 3}));
  EXPECT_LE(relative_rms_error(o, values_of(expected.o)), 2e-5);
  EXPECT_LE(relative_rms_error(values_of(narrow), values_of(*expected.final_state)), 5e-3);
}

TEST_F(CPlans, TheBoundOfTheirWorkspaceDependsOnItsLimitAlone) {
  const UniquePlan backward = plan();
  std::size_t bound = 0;
  ASSERT_EQ(attune_plan_workspace_bound(backward.get(), SIZE_MAX, &bound), ATTUNE_OK);
  EXPECT_GE(bound, attune_plan_workspace_bytes(backward.get()));
  std::size_t limited = 0;
  ASSERT_EQ(attune_plan_workspace_bound(backward.get(), bound - 1, &limited), ATTUNE_OK);
  EXPECT_LT(limited, bound);
  ASSERT_EQ(attune_plan_workspace_bound(backward.get(), 0, &limited), ATTUNE_OK);
  EXPECT_EQ(limited, 0U);
}

TEST_F(CPlans, ACallInTheCallersWorkspaceAllocatesNothing) {
  const std::size_t bytes = attune_plan_workspace_bytes(plan().get());
  Scratch scratch(bytes);
  small.call.workspace = scratch.at();
  small.call.workspace_bytes = bytes;
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  const std::size_t before = allocation_count();
  ASSERT_EQ(run(), ATTUNE_OK);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(values_of(dq), expected_dq());
  small.call.allocate = Scratch::allocate;
  EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "call: allocate: given with a workspace");
}

TEST_F(CPlans, AnAllocatorIsAskedOnce) {
  const std::size_t bytes = attune_plan_workspace_bytes(plan().get());
  Scratch scratch(bytes);
  small.call.allocate = Scratch::allocate;
  small.call.release = Scratch::release;
  small.call.user = &scratch;
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(scratch.allocations, 1);
  EXPECT_EQ(scratch.releases, 1);
  EXPECT_EQ(scratch.asked, bytes);
  EXPECT_EQ(values_of(dq), expected_dq());
}

TEST_F(CPlans, AnAllocatorThatFailsFailsTheCall) {
  Scratch nothing(0);
  small.call.allocate = Scratch::allocate;
  small.call.release = Scratch::release;
  small.call.user = &nothing;
  EXPECT_EQ(run(), ATTUNE_OUT_OF_MEMORY);
  EXPECT_EQ(nothing.releases, 0);

  Scratch crooked(attune_plan_workspace_bytes(plan().get()) + 64);
  crooked.behind = 8;
  small.call.user = &crooked;
  EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(),
              HasSubstr("call: allocate: expected memory at a multiple of 64"));
  EXPECT_EQ(crooked.releases, 1);

  small.call.allocate = nullptr;
  EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "call: release: given without allocate");
}

TEST_F(CPlans, NothingIsChosenThatNeedsMoreThanTheWorkspace) {
  Scratch little(64);
  small.call.workspace = little.at();
  small.call.workspace_bytes = 64;
  const attune_status status = run();
  EXPECT_TRUE(status == ATTUNE_OK || status == ATTUNE_UNSUPPORTED) << attune_last_error();
  small.call.workspace = nullptr;
  small.call.workspace_bytes = 0;
  small.call.workspace_limit = 64;
  EXPECT_EQ(run(), status);
  attune_plan* made = nullptr;
  EXPECT_EQ(attune_attention_backward_plan(&small.args, &grads, &small.call, &made), status);
  EXPECT_LE(attune_plan_workspace_bytes(made), 64U);
  attune_plan_destroy(made);
  small.call.workspace = little.at(4);
  small.call.workspace_bytes = 32;
  EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
}

TEST_F(CPlans, GradientsOfOtherStridesAreWrittenInACallersWorkspace) {
  // dq as [B, H, T, K], which a plan made from the inputs does not expect.
  Tensor wide(DType::kF32, {2, 2, 300, 32});
  const CTensor permuted(ConstTensorView(wide.view()).permute({0, 2, 1, 3}));
  grads.dq = permuted;
  Scratch scratch(attune_plan_workspace_bytes(plan().get()));
  small.call.allocate = Scratch::allocate;
  small.call.user = &scratch;
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  const std::vector<double> got = to_doubles(ConstTensorView(wide.view()).permute({0, 2, 1, 3}));
  EXPECT_LE(relative_rms_error(got, expected_dq()), 2e-5);
}

TEST_F(CPlans, SlopesHaveTheirGradientByAPlanToo) {
  Tensor slopes = small.random({2}, DType::kF32, 0.5, 0.01);
  Tensor dslopes(DType::kF32, {2});
  const CTensor slopes_c(slopes), dslopes_c(dslopes);
  small.args.g = nullptr;
  small.args.slopes = slopes_c;
  EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(),
               "lightning_attention.backward: dg: given with slopes or a layer, which exclude it");
  grads.dg = nullptr;
  grads.dslopes = dslopes_c;
  const UniquePlan backward = plan();
  const std::size_t bytes = attune_plan_workspace_bytes(backward.get());
  Scratch scratch(bytes);
  ASSERT_EQ(launch(backward, scratch.at(), bytes), ATTUNE_OK) << attune_last_error();
  const auto expected = ops::lightning_attention_backward(
      small.q, small.k, small.v, {.d_o = ConstTensorView(d_o)},
      {.slopes = ConstTensorView(slopes), .call = {.context = &heuristic_context()}});
  EXPECT_EQ(values_of(dslopes), values_of(*expected.dslopes));
  EXPECT_EQ(values_of(dq), values_of(expected.dq));
}

TEST(CDecodePlans, ALaunchHasTheResultOfACall) {
  RandomTensors random(3);
  Tensor q = random({3, 2, 16}), k = random({3, 2, 16}), v = random({3, 2, 16});
  Tensor slopes = random({2}, DType::kF32, 0.5, 0.01);
  Tensor state = random({4, 2, 16, 16}), state_of_call = copy_of(state.view());
  Tensor slots = Tensor::of(std::vector<std::int32_t>{2, -1, 0}, {3});
  Tensor o(DType::kF32, {3, 2, 16}), o_of_call(DType::kF32, {3, 2, 16});
  const CTensor q_c(q), k_c(k), v_c(v), slopes_c(slopes), state_c(state), slots_c(slots), o_c(o);
  auto args = sized<attune_decode_args>();
  args.q = q_c;
  args.k = k_c;
  args.v = v_c;
  args.slopes = slopes_c;
  args.state = state_c;
  args.slot_indices = slots_c;
  args.o = o_c;
  const UniqueContext context = make_c_context("heuristic");
  auto call = sized<attune_call>();
  call.context = context.get();
  attune_plan* plan = nullptr;
  ASSERT_EQ(attune_decode_plan(&args, &call, &plan), ATTUNE_OK) << attune_last_error();
  const UniquePlan owner(plan, attune_plan_destroy);
  Scratch scratch(attune_plan_workspace_bytes(plan));
  ASSERT_EQ(
      attune_decode_launch(plan, &args, nullptr, scratch.at(), attune_plan_workspace_bytes(plan)),
      ATTUNE_OK)
      << attune_last_error();
  const CTensor o_of_call_c(o_of_call), state_of_call_c(state_of_call);
  args.o = o_of_call_c;
  args.state = state_of_call_c;
  ASSERT_EQ(attune_decode(&args, &call), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(o), values_of(o_of_call));
  EXPECT_EQ(values_of(state), values_of(state_of_call));
}

}  // namespace
}  // namespace attune::test
