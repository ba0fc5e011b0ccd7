#include "program/duration.hpp"

#include <gtest/gtest.h>

namespace attune::cli {
namespace {

using std::chrono::milliseconds;

TEST(Duration, ReadsEachUnit) {
  EXPECT_EQ(parse_duration("500ms"), milliseconds(500));
  EXPECT_EQ(parse_duration("30s"), milliseconds(30'000));
  EXPECT_EQ(parse_duration("10m"), milliseconds(600'000));
  EXPECT_EQ(parse_duration("2h"), milliseconds(7'200'000));
  EXPECT_EQ(parse_duration("1.5s"), milliseconds(1'500));
}

TEST(Duration, RefusesWhatIsNotATime) {
  for (const char* text : {"", "30", "s", "30 s", " 30s", "30S", "30sec", "-1s", "+1s", "0s",
                           "0.1ms", "1e3s", "nans", "infs", "0x10s", "1..5s", "100000h", "1s1s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(Real, ReadsFiniteNumbersOnly) {
  EXPECT_EQ(parse_real("-0.5"), -0.5);
  EXPECT_EQ(parse_real("1e-3"), 1e-3);
  for (const char* text :
       {"", "nan", "NAN", "inf", "-inf", "infinity", "1e999", "1,5", "1.0x", " 1", "1 "}) {
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace attune::cli
