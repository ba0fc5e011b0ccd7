// validate_backward: a tuned op's gradients are checked against the oracle.
#include <gmock/gmock.h>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

using BackwardConfig = TiledConfigOf<ScalingBackward>;
using BackwardScript = ScriptOf<BackwardConfig>;

class BackwardTest : public ChainTest {
 protected:
  BackwardTest() {
    add_tiled();
    registry.add_op<ScalingBackward>();
    settings.policy.validate_backward = true;
  }
  void add_backward(BackwardScript script, std::string_view platform) {
    registry.add(scripted(world, std::move(script)), {.platform = platform});
  }
  std::vector<QuarantineRow> quarantined() const {
    return ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly)
        .read()
        .quarantine;
  }
};

TEST_F(BackwardTest, WrongGradientsAreQuarantinedAndSaid) {
  add_backward({.name = "test.backward",
                .compute = [](const auto&, const ScalingArgs& a, const auto&) { a.y[0] = 1e6F; }},
               "test");
  add_backward({.name = "reference.backward"}, kReferencePlatform);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  ASSERT_EQ(quarantined().size(), 1U);
  EXPECT_EQ(quarantined()[0].op, "scaling.backward");
  EXPECT_EQ(quarantined()[0].kernel, "test.backward");
  EXPECT_EQ(quarantined()[0].config, "tile=1,threads=1");
  EXPECT_EQ(quarantined()[0].problem, "rows=100")
      << "the forward problem without the field it lacks";
  EXPECT_THAT(
      logged,
      HasSubstr("gradients of scaling.backward rows=100 by test.backward tile=1,threads=1: wrong"));
}

TEST_F(BackwardTest, RightGradientsPass) {
  add_backward({.name = "test.backward"}, "test");
  add_backward({.name = "reference.backward"}, kReferencePlatform);
  select();
  EXPECT_TRUE(quarantined().empty());
  EXPECT_THAT(logged, testing::Not(HasSubstr("gradients")));
}

TEST_F(BackwardTest, AnOpWithoutABackwardKernelIsTunedAllTheSame) {
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(BackwardTest, IsNotCheckedUnlessAskedFor) {
  settings.policy.validate_backward = false;
  add_backward({.name = "test.backward",
                .compute = [](const auto&, const ScalingArgs& a, const auto&) { a.y[0] = 1e6F; }},
               "test");
  select();
  EXPECT_TRUE(quarantined().empty());
}

}  // namespace
}  // namespace attune::test
