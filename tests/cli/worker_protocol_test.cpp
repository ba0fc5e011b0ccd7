// What tuner and worker say to each other arrives as it was meant.
#include "process/worker_protocol.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attune::cli {
namespace {

using tuning::Verdict;

Verdict sent(const Verdict& verdict) { return verdict_from(from_line(to_line(to_json(verdict)))); }

TEST(WorkerProtocol, AVerdictArrivesAsItWas) {
  for (const TrialOutcome outcome :
       {TrialOutcome::kOk, TrialOutcome::kWrong, TrialOutcome::kFailed, TrialOutcome::kCrashed}) {
    const Verdict got = sent({outcome, "y: \"bad\"\nat [1]", 0.25});
    EXPECT_EQ(got.outcome, outcome);
    EXPECT_EQ(got.reason, "y: \"bad\"\nat [1]");
    EXPECT_EQ(got.error, 0.25);
  }
}

TEST(WorkerProtocol, AnInfiniteErrorStaysInfinite) {
  EXPECT_TRUE(std::isinf(sent({TrialOutcome::kWrong, "", HUGE_VAL}).error));
}

TEST(WorkerProtocol, AReasonNeedNotBeText) {
  EXPECT_THAT(sent({TrialOutcome::kFailed, "bytes \xff\xfe end", 0}).reason,
              testing::StartsWith("bytes "));
}

TEST(WorkerProtocol, AnUnknownOutcomeIsRefused) {
  EXPECT_THROW(verdict_from({{"outcome", "good"}, {"reason", ""}, {"error", 0}}), InvalidArgument);
}

TEST(WorkerProtocol, AMessageIsOneLine) {
  const std::string line = to_line({{"reason", "one\ntwo"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(from_line("not a message").is_null());
  EXPECT_TRUE(from_line("[1, 2]").is_null());
}

TEST(WorkerProtocol, ACandidateIsFoundByName) {
  const Registry empty;
  EXPECT_THROW(candidate_from({{"kernel", "simd.x"}, {"config", ""}}, empty), Unavailable);
}

}  // namespace
}  // namespace attune::cli
