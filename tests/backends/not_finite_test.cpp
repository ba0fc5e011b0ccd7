// How far a NaN or an infinity among the inputs gets, next to what recurrent_attention.hpp says of
// it.
#include "support/not_finite.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "support/host_kernels.hpp"

namespace attune::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Of attention and of decoding.
std::vector<KernelOnDevice> kernels_of_tokens() {
  std::vector<KernelOnDevice> kernels = host_kernels();
  std::erase_if(kernels,
                [](const KernelOnDevice& on) { return !on.op->name.starts_with("recurrent_"); });
  return kernels;
}

class NotFinite : public HostKernel {};
INSTANTIATE_TEST_SUITE_P(EveryHostKernel, NotFinite, testing::ValuesIn(kernels_of_tokens()),
                         host_kernel_name);

TEST_P(NotFinite, ReachesItsHeadSequenceAndChunkAtMost) {
  EXPECT_GT(expect_only_the_allowed_is_reached(GetParam(), GetParam().info()), 0);
}

// The check itself, on a kernel in which a NaN is known to reach tokens before its own.
class NotFiniteCheck : public testing::Test {
 protected:
  NotFiniteCheck()
      : on_(chunk_kernel()),
        case_(on_, on_.op->parse(parse_params("N=2 T=200 H=4 Hkv=2 K=64 V=64 ht=yes", ' ')), 1),
        reached_(case_.reached(heuristic(), kSpoilt)) {}

  bool allows(const SpoiltInput& spoilt, std::int64_t reach = kChunkReach) const {
    return std::ranges::all_of(reached_, [&](const ReachedRow& reached) {
      return case_.is_allowed(spoilt, reached, reach);
    });
  }
  std::int64_t furthest() const {
    std::int64_t furthest = 0;
    for (const ReachedRow& reached : reached_) {
      furthest = std::max(furthest, case_.wrong_way(kSpoilt, reached));
    }
    return furthest;
  }

  static inline const SpoiltInput kSpoilt{.name = "v", .row = 79, .head = 1, .value = kNan};

 private:
  static KernelOnDevice chunk_kernel() {
    for (const KernelOnDevice& on : host_kernels("recurrent_attention")) {
      if (on.kernel->name() == "simd.chunk") return on;
    }
    throw InvalidArgument("no simd.chunk");
  }
  ConfigBlob heuristic() {
    const AnyProblem problem =
        on_.op->parse(parse_params("N=2 T=200 H=4 Hkv=2 K=64 V=64 ht=yes", ' '));
    return on_.kernel->erased_heuristic(problem, on_.info());
  }

  KernelOnDevice on_;
  SpoiltCase case_;
  std::vector<ReachedRow> reached_;
};

TEST_F(NotFiniteCheck, AllowsWhatItsOwnChunkShares) {
  EXPECT_TRUE(allows(kSpoilt));
  EXPECT_TRUE(allows(kSpoilt, furthest()));
}

TEST_F(NotFiniteCheck, FindsATokenThatIsOneTooFar) {
  ASSERT_GT(furthest(), 0) << "causal now: take another kernel here";
  EXPECT_FALSE(allows(kSpoilt, furthest() - 1));
}

TEST_F(NotFiniteCheck, FindsTheNextChunk) {
  SpoiltInput later = kSpoilt;
  later.row += kChunkReach + 1;
  EXPECT_FALSE(allows(later));
}

TEST_F(NotFiniteCheck, FindsAnotherHead) {
  SpoiltInput other = kSpoilt;
  other.head = 0;
  EXPECT_FALSE(allows(other));
}

TEST_F(NotFiniteCheck, FindsAnotherSequence) {
  SpoiltInput other = kSpoilt;
  other.row = 199;
  EXPECT_FALSE(allows(other));
}

}  // namespace
}  // namespace attune::test
