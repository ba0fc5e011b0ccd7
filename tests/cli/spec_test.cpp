#include "problems/spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> problems(std::string_view text) {
  std::vector<std::string> out;
  for (const NamedProblem& problem : expand(parse_spec_text(text))) {
    out.push_back(problem.op + ": " + to_text(problem.params, ' '));
  }
  return out;
}

std::string refusal(std::string_view text) {
  try {
    problems(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Spec, ListsMultiplyAndTheLastVariesFastest) {
  EXPECT_THAT(problems("toy B=1,2 T=8,16 dtype=f32"),
              ElementsAre("toy: B=1 T=8 dtype=f32", "toy: B=1 T=16 dtype=f32",
                          "toy: B=2 T=8 dtype=f32", "toy: B=2 T=16 dtype=f32"));
}

TEST(Spec, WithoutAxesIsOneProblemOfDefaults) {
  EXPECT_THAT(problems("toy"), ElementsAre("toy: "));
}

TEST(Spec, RangesIncludeTheirEndWhenTheyReachIt) {
  EXPECT_THAT(problems("t T=[512:4096:*2]"),
              ElementsAre("t: T=512", "t: T=1024", "t: T=2048", "t: T=4096"));
  EXPECT_THAT(problems("t T=[1:10:+4]"), ElementsAre("t: T=1", "t: T=5", "t: T=9"));
  EXPECT_THAT(problems("t T=[7:7:*2]"), ElementsAre("t: T=7"));
  EXPECT_THAT(problems("t T=1,[4:8:+4],100"),
              ElementsAre("t: T=1", "t: T=4", "t: T=8", "t: T=100"));
}

TEST(Spec, RangesEndBeforeTheyOverflow) {
  EXPECT_THAT(problems("t T=[9223372036854775806:9223372036854775807:+1]"),
              ElementsAre("t: T=9223372036854775806", "t: T=9223372036854775807"));
  EXPECT_THAT(problems("t T=[4611686018427387904:9223372036854775807:*2]"),
              ElementsAre("t: T=4611686018427387904"));
}

TEST(Spec, PlusSignsInValuesAreTheirOwn) {
  EXPECT_THAT(problems("t gate=g+gk,none"), ElementsAre("t: gate=g+gk", "t: gate=none"));
}

TEST(Spec, PassNamesTheBackwardOp) {
  EXPECT_THAT(problems("t T=1 pass=fwd,bwd"), ElementsAre("t: T=1", "t.backward: T=1"));
  EXPECT_THAT(problems("t.backward pass=bwd"), ElementsAre("t.backward: "));
  EXPECT_THAT(refusal("t pass=both"), HasSubstr("pass=both"));
  EXPECT_THAT(refusal("t.backward pass=fwd"), HasSubstr("pass=fwd"));
}

TEST(Spec, MessagesNameTheField) {
  for (const char* range :
       {"[1:2]", "[1:2:3]", "[2:1:+1]", "[1:8:*1]", "[0:8:*2]", "[1:8:+0]", "[a:b:+1]", "[1:8:*2",
        "[1:8:*2]x", "[-1:8:+1]", "[::+1]", "[]", "[1:2:+1:+1]"}) {
    EXPECT_THAT(refusal(std::string("t T=") + range), HasSubstr("T=")) << range;
  }
  EXPECT_THAT(refusal("t T="), HasSubstr("'T='"));
  EXPECT_THAT(refusal("t =1"), HasSubstr("expected name=value"));
  EXPECT_THAT(refusal("t T=1,,2"), HasSubstr("T=1,,2"));
  EXPECT_THAT(refusal("t T=1 T=2"), HasSubstr("'T' is given twice"));
  EXPECT_THAT(refusal("t T=1 u"), HasSubstr("'u': expected name=value"));
}

TEST(Spec, RefusesMoreFieldsThanAnyOpHas) {
  std::string fields;
  for (std::size_t i = 0; i <= kMaxAxes; ++i) fields += str(" f", i, "=1");
  EXPECT_THAT(refusal("t" + fields), HasSubstr("'f256': more than 256 fields"));
}

TEST(Spec, RefusesMoreProblemsThanAnyoneMeans) {
  EXPECT_EQ(problems("t T=[1:10000:+1]").size(), kMaxProblems);
  EXPECT_THAT(refusal("t T=[1:10001:+1]"), HasSubstr("T: more than 10000"));
  EXPECT_THAT(refusal("t B=[1:101:+1] T=[1:100:+1]"), HasSubstr("'T'"));
  EXPECT_THAT(refusal("t T=[1:9223372036854775807:+1]"), HasSubstr("10000"));
}

/// Specs of any names and values that the grammar allows.
rc::Gen<Spec> any_spec() {
  const auto word = rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abcXYZ019_.+-*:"))));
  const auto axis = rc::gen::build<SpecAxis>(
      rc::gen::set(&SpecAxis::name, word),
      rc::gen::set(&SpecAxis::values,
                   rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(word))));
  const auto axes =
      rc::gen::uniqueBy<std::vector<SpecAxis>>(axis, [](const SpecAxis& a) { return a.name; });
  return rc::gen::build<Spec>(rc::gen::set(&Spec::op, word), rc::gen::set(&Spec::axes, axes));
}

RC_GTEST_PROP(Spec, ReadsBackWhatItPrints, ()) {
  const Spec spec = *any_spec();
  RC_ASSERT(parse_spec_text(to_text(spec)) == spec);
}

RC_GTEST_PROP(Spec, AnyTextIsReadOrRefusedInOnesOwnWords, (const std::string& text)) {
  try {
    const Spec spec = parse_spec_text(text);
    RC_ASSERT(parse_spec_text(to_text(spec)) == spec);
  } catch (const UsageError&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace attune::cli
