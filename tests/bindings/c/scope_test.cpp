// Scopes: what is in force, on which thread, and the order in which they end.
#include <thread>

#include "bindings/c/c_tensor.hpp"

namespace attune::test {
namespace {

constexpr const char* kOp = "recurrent_attention";
constexpr const char* kProblem = "T=64 H=2 D=32";
constexpr attune_device kCpu{ATTUNE_CPU, 0};

class CScopes : public testing::Test {
 protected:
  CScopes() { call_.context = context_.get(); }

  nlohmann::json explain() const {
    return json_of([&](char** json) { return attune_explain(kOp, kProblem, kCpu, &call_, json); });
  }
  /// Whether a policy is in force that makes the problem, which is not tuned, an error.
  bool is_strict() const { return explain()["kernel"].is_null(); }

  static attune_scope* begin(const char* policy) {
    attune_scope* scope = nullptr;
    EXPECT_EQ(attune_scope_policy(policy, &scope), ATTUNE_OK) << attune_last_error();
    return scope;
  }

  UniqueContext context_ = make_c_context("heuristic");
  attune_call call_ = sized<attune_call>();
};

TEST_F(CScopes, APolicyIsInForceUntilItEnds) {
  EXPECT_FALSE(is_strict());
  attune_scope* strict = begin("strict");
  EXPECT_TRUE(is_strict());
  attune_scope* lenient = begin("db");
  EXPECT_FALSE(is_strict());
  EXPECT_EQ(attune_scope_end(lenient), ATTUNE_OK);
  EXPECT_TRUE(is_strict());
  EXPECT_EQ(attune_scope_end(strict), ATTUNE_OK);
  EXPECT_FALSE(is_strict());
}

TEST_F(CScopes, TheyEndTheLastBegunFirst) {
  attune_scope* outer = begin("strict");
  attune_scope* inner = begin("db");
  EXPECT_EQ(attune_scope_end(outer), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "scope: is not the last one that this thread began");
  std::thread([&] { EXPECT_EQ(attune_scope_end(inner), ATTUNE_INVALID_ARGUMENT); }).join();
  EXPECT_FALSE(is_strict());
  EXPECT_EQ(attune_scope_end(inner), ATTUNE_OK);
  EXPECT_EQ(attune_scope_end(outer), ATTUNE_OK);
}

TEST_F(CScopes, OtherThreadsHaveThemWhereTheyAreAttached) {
  attune_scope* strict = begin("strict");
  attune_scopes* captured = nullptr;
  ASSERT_EQ(attune_scopes_capture(&captured), ATTUNE_OK);
  EXPECT_EQ(attune_scope_end(strict), ATTUNE_OK);
  std::thread([&] {
    EXPECT_FALSE(is_strict());
    attune_scope* attached = nullptr;
    ASSERT_EQ(attune_scopes_attach(captured, &attached), ATTUNE_OK);
    attune_scopes_destroy(captured);  // what is attached stays
    EXPECT_TRUE(is_strict());
    EXPECT_EQ(attune_scope_end(attached), ATTUNE_OK);
    EXPECT_FALSE(is_strict());
  }).join();
  EXPECT_FALSE(is_strict());
}

TEST_F(CScopes, AnOverlayIsUsedWhereItFits) {
  const std::string kernel = explain()["kernel"];
  attune_scope* scope = nullptr;
  ASSERT_EQ(attune_scope_overlay(kOp, ("kernel=" + kernel).c_str(), nullptr, &scope), ATTUNE_OK)
      << attune_last_error();
  EXPECT_EQ(explain()["tier"], "overlay");
  EXPECT_EQ(attune_scope_end(scope), ATTUNE_OK);
  EXPECT_EQ(explain()["tier"], "heuristic");

  ASSERT_EQ(attune_scope_overlay(kOp, ("kernel=" + kernel).c_str(), "T=999 H=2 D=32", &scope),
            ATTUNE_OK)
      << attune_last_error();
  EXPECT_EQ(explain()["tier"], "heuristic");
  EXPECT_EQ(attune_scope_end(scope), ATTUNE_OK);
}

TEST_F(CScopes, WhatIsNoPolicyOrConfigIsRefusedAndBeginsNothing) {
  attune_scope* scope = nullptr;
  EXPECT_EQ(attune_scope_policy("tuned", &scope), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), testing::HasSubstr("did you mean 'tune'?"));
  EXPECT_EQ(attune_scope_policy(nullptr, &scope), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attune_scope_overlay(kOp, "tile_v", nullptr, &scope), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attune_scopes_attach(nullptr, &scope), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(scope, nullptr);
}

}  // namespace
}  // namespace attune::test
