// Structs of callers that were compiled with another attune.h, and tensors of all kinds.
#include <cstddef>
#include <cstring>

#include "bindings/c/small_call.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

// Programs were compiled with these: members are only ever added behind them.
static_assert(sizeof(attune_tensor) == 48 && sizeof(attune_device) == 8 &&
              sizeof(attune_dtype) == 4);
static_assert(offsetof(attune_call, context) == 8 && offsetof(attune_call, allocate) == 40 &&
              offsetof(attune_call, config) == 72 && sizeof(attune_call) >= 80);
static_assert(offsetof(attune_attention_args, g) == 32 &&
              offsetof(attune_attention_args, layer_idx) == 72 &&
              offsetof(attune_attention_args, final_state) == 128 &&
              sizeof(attune_attention_args) >= 136);
static_assert(offsetof(attune_attention_grads, dq) == 24 &&
              offsetof(attune_attention_grads, dinitial_state) == 88 &&
              sizeof(attune_attention_grads) >= 96);
static_assert(offsetof(attune_decode_args, state) == 88 && offsetof(attune_decode_args, o) == 112 &&
              sizeof(attune_decode_args) >= 120);
static_assert(offsetof(attune_context_options, plugins) == 24 &&
              offsetof(attune_context_options, reload_ms) == 64 &&
              sizeof(attune_context_options) >= 72);
static_assert(offsetof(attune_tune_options, budget_ms) == 8 &&
              offsetof(attune_tune_options, user) == 32 && sizeof(attune_tune_options) >= 40);

class CStructs : public testing::Test {
 protected:
  SmallCall small;

  attune_status run() { return attune_attention(&small.args, &small.call); }
  void expect_refused(const std::string& text) {
    EXPECT_EQ(run(), ATTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(attune_last_error(), HasSubstr(text));
  }
};

TEST_F(CStructs, ACallHasTheResultOfTheCxxCall) {
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  const auto expected = small.expected();
  EXPECT_EQ(values_of(small.o), values_of(expected.o));
  EXPECT_EQ(values_of(small.final_state), values_of(*expected.final_state));
}

TEST_F(CStructs, AnOlderCallersEndsWhereItsSizeSays) {
  // Garbage where members stand that its author did not know.
  std::memset(&small.call.workspace, 0xa5, sizeof small.call - offsetof(attune_call, workspace));
  small.call.struct_size = offsetof(attune_call, workspace);
  const auto* garbage = reinterpret_cast<const attune_tensor*>(std::uintptr_t{0xa5a5});
  small.args.final_state = garbage;
  small.args.struct_size = offsetof(attune_attention_args, final_state);
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  EXPECT_LE(relative_rms_error(values_of(small.o), values_of(small.expected().o)), 2e-5);
}

TEST_F(CStructs, ANewerCallersIsTakenWhileItsNewMembersAreZero) {
  struct {
    attune_call known;
    std::uint64_t later[3];
  } newer{.known = small.call, .later = {}};
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(attune_attention(&small.args, &newer.known), ATTUNE_OK) << attune_last_error();
  newer.later[2] = 1;
  EXPECT_EQ(attune_attention(&small.args, &newer.known), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(),
              HasSubstr(str("call: struct_size is ", sizeof newer, ", of which this library knows ",
                            sizeof(attune_call))));
}

TEST_F(CStructs, ASizeThatIsNoneIsRefused) {
  for (const std::uint32_t size : {0U, 4U, 12U, 0xffffffffU}) {
    small.args.struct_size = size;
    expect_refused(str("args: struct_size is ", size, ", expected sizeof the struct"));
  }
}

TEST_F(CStructs, FlagsThatAreNotKnownAreRefused) {
  small.args.flags = 4;
  expect_refused("args: flags has bits 4, which this library does not know");
  small.args.flags = 0;
  small.call.flags = 0x10 | ATTUNE_ALLOW_TF32;
  expect_refused("call: flags has bits 16");

  auto grads = sized<attune_attention_grads>();
  grads.flags = 1;
  EXPECT_EQ(attune_attention_backward(&small.args, &grads, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("grads: flags"));
  auto decode = sized<attune_decode_args>();
  decode.flags = 1;
  EXPECT_EQ(attune_decode(&decode, nullptr), ATTUNE_INVALID_ARGUMENT);
  auto options = sized<attune_context_options>();
  options.flags = 2;
  attune_context* context = nullptr;
  EXPECT_EQ(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT);
  auto tuning = sized<attune_tune_options>();
  tuning.flags = 1;
  char* json = nullptr;
  EXPECT_EQ(attune_tune("recurrent_attention", "T=8 D=8", {ATTUNE_CPU, 0}, nullptr, &tuning, &json),
            ATTUNE_INVALID_ARGUMENT);
}

TEST_F(CStructs, ATensorWithoutStridesIsDense) {
  small.q_c->strides = nullptr;
  small.o_c->strides = nullptr;
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(small.o), values_of(small.expected().o));
}

TEST_F(CStructs, AByteOffsetIsAddedToTheAddress) {
  const std::vector<double> expected = values_of(small.expected().o);
  small.q_c->data = static_cast<std::byte*>(small.q_c->data) - 4096;
  small.q_c->byte_offset = 4096;
  ASSERT_EQ(run(), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(values_of(small.o), expected);
}

TEST_F(CStructs, PinnedMemoryIsHostMemory) {
  small.q_c->device = {ATTUNE_CUDA_HOST, 0};
  EXPECT_EQ(run(), ATTUNE_OK) << attune_last_error();
}

TEST_F(CStructs, TensorsThatAreNoneAreRefusedByName) {
  small.q_c->ndim = 6;
  expect_refused("recurrent_attention: q: rank 6, expected at most 5");
  small.q_c->ndim = -1;
  expect_refused("recurrent_attention: q: rank -1, expected at most 5");
  small.q_c->ndim = 4;
  small.q_c->dtype = {ATTUNE_FLOAT, 64, 1};
  expect_refused("recurrent_attention: q: dtype f64, expected f32");
  small.q_c->dtype = {ATTUNE_FLOAT, 32, 2};
  expect_refused("q: dtype f32 of 2 lanes, expected");
  small.q_c->dtype = {200, 8, 1};
  expect_refused("q: dtype of code 200 with 8 bits, expected");
  small.q_c->dtype = {ATTUNE_FLOAT, 32, 1};
  small.q_c->device = {4, 0};
  expect_refused("recurrent_attention: q: device type 4, expected 1 (CPU), 2 (CUDA)");
  small.q_c->device = {ATTUNE_CPU, 0};
  small.q_c->data = nullptr;
  expect_refused("recurrent_attention: q:");
  small.q_c->shape = nullptr;
  expect_refused("recurrent_attention: q: shape is NULL");
  small.args.q = nullptr;
  expect_refused("recurrent_attention: q: not given (NULL)");
}

TEST_F(CStructs, NullsAreRefusedByName) {
  EXPECT_EQ(attune_attention(nullptr, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "args: NULL");
  EXPECT_EQ(attune_attention_backward(&small.args, nullptr, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "grads: NULL");
  EXPECT_EQ(attune_attention_plan(&small.args, nullptr, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "out: NULL");
  EXPECT_EQ(attune_attention_launch(nullptr, &small.args, nullptr, nullptr, 0),
            ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "plan: NULL");
  EXPECT_EQ(attune_explain(nullptr, "T=1", {ATTUNE_CPU, 0}, nullptr, nullptr),
            ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "json: NULL");
  EXPECT_EQ(attune_minimax_slopes(4, 0, 1, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "slopes: NULL");
  small.call.workspace_bytes = 64;
  expect_refused("call: workspace: NULL, but workspace_bytes is 64");
}

TEST_F(CStructs, WhatIsDestroyedMayBeNull) {
  attune_free(nullptr);
  attune_plan_destroy(nullptr);
  attune_context_destroy(nullptr);
  attune_scopes_destroy(nullptr);
  EXPECT_EQ(attune_scope_end(nullptr), ATTUNE_OK);
  EXPECT_EQ(attune_plan_workspace_bytes(nullptr), 0U);
  EXPECT_STREQ(attune_plan_config(nullptr), "");
}

TEST_F(CStructs, SlopesAndLayersExcludeOtherGates) {
  Tensor slopes = small.random({2});
  const CTensor slopes_c(slopes);
  small.args.slopes = slopes_c;
  expect_refused("lightning_attention: g: given with slopes or a layer, which exclude it");
  small.args.slopes = nullptr;
  small.args.g = nullptr;
  small.args.layer_idx = 3;
  expect_refused("lightning_attention: ");
  small.args.num_layers = 12;
  EXPECT_EQ(run(), ATTUNE_OK) << attune_last_error();
}

}  // namespace
}  // namespace attune::test
