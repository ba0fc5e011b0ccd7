// The golden cases of tests/data, forward and backward, through the ops' own reading of tensor
// files.
#include <algorithm>
#include <array>
#include <filesystem>

#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/io/safetensors.hpp>

#include "support/heuristic_context.hpp"

namespace attune::test {
namespace {

constexpr std::string_view kExpect = "expect.";
constexpr std::array kPlatforms{"reference", "auto", "cuda"};

struct GoldenCase {
  std::string file;
  const char* platform;

  DeviceId device() const {
    return {.backend = platform == std::string_view("cuda") ? "gpu" : "cpu", .index = 0};
  }

  friend std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
    return out << golden.file << " by " << golden.platform;
  }
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(ATTUNE_TEST_DATA)) {
    if (entry.path().extension() != ".safetensors") continue;
    for (const char* const platform : kPlatforms) {
      cases.push_back({entry.path().stem().string(), platform});
    }
  }
  std::ranges::sort(cases, {}, &GoldenCase::file);
  return cases;
}

std::string golden_test_name(const testing::TestParamInfo<GoldenCase>& test) {
  return str(test.param.file, "_", test.param.platform);
}

bool is_backward(std::string_view output) { return output.starts_with("d"); }

/// The file's expected outputs of one pass, without those that are only informative.
TensorMap expected_outputs(const io::TensorFile& file, bool backward) {
  TensorMap expected;
  for (const auto& [name, tensor] : file.tensors) {
    if (!name.starts_with(kExpect)) continue;
    const std::string output = name.substr(kExpect.size());
    if (output == "dg_gamma" && file.attributes.contains("layer_idx")) continue;
    if (is_backward(output) == backward) {
      expected.emplace(output, to_host(tensor, cpu_device()));
    }
  }
  return expected;
}

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  /// How many outputs were compared.
  std::size_t check_pass(const io::TensorFile& file, const std::string& op, bool backward) const {
    const TensorMap expected = expected_outputs(file, backward);
    if (expected.empty()) return 0;
    Context& context = heuristic_context();
    const Device& device = context.registry().device(GetParam().device());
    const std::unique_ptr<Case> bound =
        context.registry().op(op).bind_case(file.tensors, file.attributes, device);
    bound->reset(std::byte{0xff});
    Executor(context).run(*bound, {.device = &device, .platform = GetParam().platform});
    device.synchronize(nullptr);

    const std::vector<OutputCheck> checks = bound->compare(expected);
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(std::ranges::any_of(checks, [&](const auto& c) { return c.name == name; }))
          << name << " is expected and not computed";
    }
    for (const OutputCheck& check : checks) {
      EXPECT_TRUE(check.passed) << op << ", " << check.name << ": error " << check.error
                                << ", tolerance " << check.tolerance << " " << check.reason;
    }
    return expected.size();
  }
};

TEST_P(Golden, IsReproduced) {
  if (heuristic_context().registry().find_device(GetParam().device()) == nullptr) {
    GTEST_SKIP() << "needs a GPU";
  }
  const io::TensorFile file = io::read_safetensors(
      (std::filesystem::path(ATTUNE_TEST_DATA) / (GetParam().file + ".safetensors")).string());
  const std::string& op = file.attributes.at("op");
  const std::size_t forward = check_pass(file, op, false);
  const std::size_t backward = check_pass(file, op + ".backward", true);
  EXPECT_GT(forward, 0U);
  EXPECT_EQ(backward > 0, file.tensors.contains("do"));
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_cases()), golden_test_name);

TEST(GoldenFiles, AreAllThere) { EXPECT_EQ(golden_cases().size(), kPlatforms.size() * 27U); }

}  // namespace
}  // namespace attune::test
