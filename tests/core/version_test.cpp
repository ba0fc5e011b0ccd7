#include <string>

#include <gtest/gtest.h>

#include <attune/core/version.hpp>

namespace attune {
namespace {

TEST(Version, TextAndNumbersAgree) {
  EXPECT_EQ(kVersion, std::to_string(kVersionMajor) + "." + std::to_string(kVersionMinor) + "." +
                          std::to_string(kVersionPatch));
}

}  // namespace
}  // namespace attune
