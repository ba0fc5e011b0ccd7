// Cases from the contents of tensor files: what is taken, what is produced, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/case_support.hpp"
#include "ops/spy_context.hpp"

namespace attune::test {
namespace {

using ops::ConstantDecay;
using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using ops::RecurrentDecode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// A file's contents.
struct File {
  TensorMap tensors;
  Attributes attributes;

  File& add(const char* name, const Extents& shape, float value = 0.5F) {
    tensors.insert_or_assign(name, filled(shape, value));
    return *this;
  }
  File& add_indices(const char* name, const std::vector<std::int64_t>& values) {
    tensors.insert_or_assign(name, Tensor::of(values, {static_cast<std::int64_t>(values.size())}));
    return *this;
  }
};

File attention_file() {
  File file;
  file.add("q", {1, 5, 2, 4}).add("k", {1, 5, 2, 4}).add("v", {1, 5, 2, 3});
  file.add("do", {1, 5, 2, 3}).add("expect.o", {1, 5, 2, 3});
  return file;
}

File decode_file() {
  File file;
  file.add("q", {2, 2, 4}).add("k", {2, 2, 4}).add("v", {2, 2, 3}).add("kv_cache", {3, 2, 4, 3});
  file.add_indices("slot_indices", {2, -1});
  return file;
}

std::unique_ptr<Case> bind(std::string_view op, const File& file,
                           const Device& device = cpu_device()) {
  return all_ops().op(op).bind_case(file.tensors, file.attributes, device);
}

std::vector<std::string> outputs(std::string_view op, const File& file) {
  std::vector<std::string> names;
  for (const NamedTensor& output : bind(op, file)->outputs()) names.push_back(output.name);
  return names;
}

std::string refusal(std::string_view op, const File& file) {
  try {
    bind(op, file);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BoundCase, HasAFilesInputsAndAlwaysTheFinalState) {
  File file = attention_file();
  file.attributes = {{"op", "recurrent_attention"}, {"scale", "0.25"}, {"reverse", "true"}};
  const auto bound = bind("recurrent_attention", file);
  const auto& args = args_of<RecurrentAttention>(*bound);
  EXPECT_EQ(args.scale, 0.25);
  EXPECT_TRUE(bound->problem().as<RecurrentAttention>().reverse);
  EXPECT_EQ(to_doubles(args.v), to_doubles(file.tensors.at("v").view()));
  EXPECT_THAT(outputs("recurrent_attention", file), ElementsAre("o", "final_state"));
}

TEST(BoundCase, ProducesTheGradientOfEachGateAndStateGiven) {
  File file = attention_file();
  EXPECT_THAT(outputs("recurrent_attention.backward", file),
              UnorderedElementsAre("dq", "dk", "dv"));
  file.add("g", {1, 5, 2}).add("gv", {1, 5, 2, 3}).add("initial_state", {1, 2, 4, 3});
  file.add("slopes", {2});
  EXPECT_THAT(outputs("recurrent_attention.backward", file),
              UnorderedElementsAre("dq", "dk", "dv", "dg", "dgv", "dinitial_state", "dslopes"));
}

TEST(BoundCase, NamesTheGradientOfAPerChannelGAfterIt) {
  File file = attention_file();
  file.add("g", {1, 5, 2, 4});
  EXPECT_THAT(outputs("recurrent_attention.backward", file),
              UnorderedElementsAre("dq", "dk", "dv", "dg"));
}

TEST(BoundCase, OfALayerHasNoGradientOfItsDecay) {
  File file = attention_file();
  file.attributes = {{"layer_idx", "1"}, {"num_layers", "4"}};
  const auto bound = bind("lightning_attention.backward", file);
  EXPECT_EQ(args_of<RecurrentAttentionBackward>(*bound).gamma.source,
            ConstantDecay::Source::kLayer);
  EXPECT_THAT(outputs("lightning_attention.backward", file),
              UnorderedElementsAre("dq", "dk", "dv"));
}

TEST(BoundCase, OfPackedTensorsWithoutABatchKeepsTheirRank) {
  File file;
  file.add("q", {5, 2, 4}).add("k", {5, 2, 4}).add("v", {5, 2, 3});
  file.add_indices("cu_seqlens", {0, 5, 5});
  const auto bound = bind("recurrent_attention", file);
  EXPECT_EQ(output_of(*bound, "o").shape, (Extents{5, 2, 3}));
  EXPECT_EQ(args_of<RecurrentAttention>(*bound).o.shape, (Extents{1, 5, 2, 3}));
  EXPECT_EQ(output_of(*bound, "final_state").shape, (Extents{2, 2, 4, 3}));
}

TEST(BoundCase, OnAPoolUpdatesItAndHasNoFinalState) {
  File file = attention_file();
  file.add("states", {4, 2, 4, 3});
  file.add_indices("final_slots", {2}).add_indices("initial_slots", {-1});
  const auto bound = bind("recurrent_attention", file);
  EXPECT_THAT(outputs("recurrent_attention", file), UnorderedElementsAre("o", "states"));
  EXPECT_EQ(problem_text<RecurrentAttention>(bound->problem().as<RecurrentAttention>()),
            "B=1 T=5 H=2 Hkv=2 K=4 V=3 N=0 dtype=f32 gate=none gate_dtype=f32 h0=no ht=no "
            "reverse=no layout=bthd aligned=no tf32=no pool=yes initial_slots=yes");
  EXPECT_EQ(refusal("recurrent_attention.backward", file),
            "recurrent_attention.backward: final_slots: not an input of this op; did you "
            "mean 'dfinal_state'?");
}

TEST(BoundCase, OfADecodeUpdatesAndRestoresTheCache) {
  File file = decode_file();
  file.add("slopes", {2});
  const auto bound = bind("lightning_decode", file);
  EXPECT_THAT(outputs("lightning_decode", file), UnorderedElementsAre("o", "kv_cache"));
  fill(*bound, "kv_cache", 7);
  bound->reset(std::byte{0});
  EXPECT_EQ(static_cast<float*>(output_of(*bound, "kv_cache").data)[0], 0.5F);
  EXPECT_EQ(bound->problem().as<RecurrentDecode>().S, 3);
}

TEST(BoundCase, OfAReplayTakesItsCommittedTokensFromTheFile) {
  File file = decode_file();
  file.add("q", {2, 3, 2, 4}).add("k", {2, 3, 2, 4}).add("v", {2, 3, 2, 3});
  file.add("committed.k", {2, 5, 2, 4}).add("committed.v", {2, 5, 2, 3});
  EXPECT_THAT(refusal("recurrent_decode", file),
              HasSubstr("committed.accepted: not given, expected with committed.k"));
  file.add_indices("committed.accepted", {5, 0});
  file.attributes = {{"stochastic_seed", "7"}};
  const auto problem = bind("recurrent_decode", file)->problem().as<RecurrentDecode>();
  EXPECT_EQ(problem.T, 3);
  EXPECT_EQ(problem.R, 5);
  EXPECT_EQ(problem.rounding, StateRounding::Kind::kNearest) << "of a pool in fp32";
  file.add("committed.g", {2, 5, 2});
  EXPECT_THAT(refusal("recurrent_decode", file), HasSubstr("committed.g: given without g"));
}

TEST(BoundCase, OfKeptStatesTakesItsTableFromTheFile) {
  File file = decode_file();
  file.tensors.erase("slot_indices");
  file.add("q", {2, 1, 2, 4}).add("k", {2, 1, 2, 4}).add("v", {2, 1, 2, 3});
  file.tensors.insert_or_assign("kept_slots", Tensor::of(std::vector<std::int64_t>{2, 0}, {2, 1}));
  EXPECT_THAT(refusal("recurrent_decode", file),
              HasSubstr("accepted: not given, expected with kept_slots"));
  file.add_indices("accepted", {1, 1});
  const auto bound = bind("recurrent_decode", file);
  EXPECT_TRUE(bound->problem().as<RecurrentDecode>().kept);
  EXPECT_EQ(bound->problem().as<RecurrentDecode>().T, 0) << "one token";
  EXPECT_EQ(output_of(*bound, "o").shape, (Extents{2, 1, 2, 3}));
}

TEST(BoundCase, LiesOnTheDeviceAskedFor) {
  const OtherDevice gpu;
  const auto bound = bind("recurrent_attention", attention_file(), gpu);
  EXPECT_EQ(args_of<RecurrentAttention>(*bound).q.device, gpu.info().id);
  EXPECT_EQ(args_of<RecurrentAttention>(*bound).o.device, gpu.info().id);
}

TEST(BoundCase, ChecksCuSeqlensAlsoForAnotherDevice) {
  File file = attention_file();
  file.add_indices("cu_seqlens", {0, 3, 6});
  try {
    bind("recurrent_attention", file, OtherDevice());
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("cu_seqlens"));
    EXPECT_THAT(error.what(), HasSubstr("got 6"));
  }
}

TEST(BadFile, IsRefusedByTheNameOfTheTensor) {
  File file = attention_file();
  file.add("inital_state", {1, 2, 4, 3});
  EXPECT_EQ(
      refusal("recurrent_attention", file),
      "recurrent_attention: inital_state: not an input of this op; did you mean 'initial_state'?");
  EXPECT_EQ(refusal("recurrent_decode", attention_file()),
            "recurrent_decode: do: not an input of this op");
  file = attention_file();
  file.tensors.erase("k");
  EXPECT_EQ(refusal("recurrent_attention", file),
            "recurrent_attention: k: not among the given tensors");
  EXPECT_EQ(refusal("gated_linear_attention", attention_file()),
            "gated_linear_attention: gk: not among the given tensors");
  EXPECT_THAT(refusal("lightning_attention", attention_file()),
              HasSubstr("lightning_attention: slopes: no decay given"));
  file = decode_file();
  file.tensors.erase("kv_cache");
  EXPECT_EQ(refusal("recurrent_decode", file),
            "recurrent_decode: kv_cache: not among the given tensors");
}

TEST(BadFile, IsRefusedForGatesThatTheOpHasNot) {
  File file = attention_file();
  file.add("gk", {1, 5, 2, 4}).add("slopes", {2});
  EXPECT_THAT(refusal("lightning_attention", file),
              HasSubstr("lightning_attention: gk: not an input"));
  EXPECT_THAT(refusal("gated_linear_attention", file),
              HasSubstr("gated_linear_attention: slopes: not an input"));
}

TEST(BadFile, IsRefusedForABackwardPassWithoutGradients) {
  File file = attention_file();
  file.tensors.erase("do");
  EXPECT_EQ(refusal("recurrent_attention.backward", file),
            "recurrent_attention.backward: do: neither it nor dfinal_state is given, expected at "
            "least one");
}

TEST(BadFile, IsRefusedForAttributesThatDoNotParse) {
  File file = attention_file();
  file.attributes = {{"scale", "0,25"}};
  EXPECT_EQ(refusal("recurrent_attention", file),
            "recurrent_attention: scale: got '0,25', expected a number");
  file.attributes = {{"scale", "nan"}};
  EXPECT_THAT(refusal("recurrent_attention", file), HasSubstr("scale: got nan, expected a finite"));
  file.attributes = {{"reverse", "maybe"}};
  EXPECT_EQ(refusal("recurrent_attention", file),
            "recurrent_attention: reverse: got 'maybe', expected true or false");
  file.attributes = {{"layer_idx", "1.5"}, {"num_layers", "2"}};
  EXPECT_EQ(refusal("lightning_attention", file),
            "lightning_attention: layer_idx: got '1.5', expected an integer");
}

TEST(BadFile, IsRefusedForShapesInTheFilesWords) {
  File file = decode_file();
  file.add("kv_cache", {3, 2, 3, 4});
  EXPECT_EQ(refusal("recurrent_decode", file),
            "recurrent_decode: kv_cache: shape [3, 2, 3, 4], expected [S, 2, 4, 3]");
}

}  // namespace
}  // namespace attune::test
