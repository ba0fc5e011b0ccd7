// Tensor files: run writes what check accepts.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/io/safetensors.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using io::TensorFile;
using ::testing::HasSubstr;
using ::testing::Not;

Tensor values(const Extents& shape, float start) {
  std::vector<float> data(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = start + 0.25F * static_cast<float>(i % 7);
  return Tensor::of(data, shape);
}

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kSize = 4;

/// A call of lightning_attention with one layer's decay, and the gradient of its output.
TensorFile layer_file() {
  TensorFile file;
  const Extents shape{1, kTokens, kHeads, kSize};
  file.tensors.emplace("q", values(shape, -0.5F));
  file.tensors.emplace("k", values(shape, 0.25F));
  file.tensors.emplace("v", values(shape, -1.0F));
  file.tensors.emplace("do", values(shape, 0.5F));
  file.attributes = {{"op", "lightning_attention"}, {"layer_idx", "1"}, {"num_layers", "4"}};
  return file;
}

class Files : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const TensorFile& file) {
    io::write_safetensors(here_.file(name), file);
    return here_.file(name);
  }

  /// The layer's file with all that `run` computed as what is expected.
  TensorFile expected_file() {
    const std::string in = write("in.safetensors", layer_file());
    const Outcome outcome =
        here_.run({"run", "lightning_attention", "--input", in, "--output",
                   here_.file("out.safetensors"), "--backward", "--platform", "reference"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    TensorFile file = layer_file();
    TensorFile out = io::read_safetensors(here_.file("out.safetensors"));
    for (auto& [name, tensor] : out.tensors)
      file.tensors.emplace("expect." + name, std::move(tensor));
    return file;
  }

  nlohmann::json check(const std::string& path, int exit_code, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"check", path, "-o", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = here_.run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    return outcome.json();
  }

  static std::string verdict(const nlohmann::json& rows, const std::string& tensor) {
    for (const auto& row : rows) {
      if (row.at("tensor") == tensor) return row.at("verdict");
    }
    return "no row";
  }

  Sandbox here_;
};

TEST_F(Files, AnAttributeThatTheOpDoesNotReadIsNamed) {
  TensorFile file = layer_file();
  file.attributes["revers"] = "yes";
  file.attributes["layer_index"] = "2";
  file.attributes["format"] = "pt";  // as other writers have it
  const Outcome outcome =
      here_.run({"run", "lightning_attention", "--input", write("in.safetensors", file),
                 "--backward", "--policy", "heuristic"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("attribute 'revers' is not used: the op has none of that "
                                     "name; did you mean 'reverse'?"));
  EXPECT_THAT(outcome.err, HasSubstr("attribute 'layer_index' is not used"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("format")));
  file = expected_file();
  file.attributes["revers"] = "yes";
  const Outcome checked = here_.run({"check", write("case.safetensors", file)});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.err, HasSubstr("attribute 'revers' is not used"));
}

TEST_F(Files, AttributesThatTheOpReadsAreNotRemarkedOn) {
  TensorFile file = layer_file();
  file.attributes["scale"] = "0.5";
  file.attributes["reverse"] = "no";
  const Outcome outcome =
      here_.run({"run", "lightning_attention", "--input", write("in.safetensors", file),
                 "--backward", "--policy", "heuristic"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Files, CheckAcceptsWhatRunComputed) {
  const nlohmann::json rows = check(write("case.safetensors", expected_file()), 0);
  for (const char* tensor : {"o", "dq", "dk", "dv"})
    EXPECT_EQ(verdict(rows, tensor), "ok") << tensor;
}

TEST_F(Files, CheckMissesAWrongValue) {
  TensorFile file = expected_file();
  file.tensors.at("expect.dk").values<float>()[3] += 0.5F;
  const nlohmann::json rows = check(write("case.safetensors", file), 1);
  EXPECT_EQ(verdict(rows, "dk"), "miss");
  EXPECT_EQ(verdict(rows, "dq"), "ok");
}

TEST_F(Files, WhatIsExpectedAndNotProducedIsAMissButALayersGradientIsNot) {
  TensorFile file = expected_file();
  file.tensors.emplace("expect.dg_gamma", values({kHeads}, 0));
  EXPECT_EQ(verdict(check(write("case.safetensors", file), 0), "dg_gamma"), "skipped");
  file.tensors.emplace("expect.dgv", values({kHeads}, 0));
  EXPECT_EQ(verdict(check(write("case.safetensors", file), 1), "dgv"), "miss");
}

TEST_F(Files, AFileThatExpectsNothingHasNotPassed) {
  check(write("case.safetensors", layer_file()), 1);
}

TEST_F(Files, OneUnreadableFileDoesNotHideTheOthers) {
  const std::string good = write("case.safetensors", expected_file());
  const Outcome outcome = here_.run({"check", "/absent", good, "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.json().at(0).at("verdict"), "unreadable");
  EXPECT_EQ(verdict(outcome.json(), "o"), "ok");
}

TEST_F(Files, OptionsOverrideTheFilesAttributes) {
  TensorFile file = expected_file();
  const std::string path = write("case.safetensors", file);
  const auto run_scaled = [&](const std::string& scale) {
    const std::string out = here_.file("scaled.safetensors");
    EXPECT_EQ(
        here_
            .run({"run", "lightning_attention", "--input", path, "--output", out, "--scale", scale})
            .exit_code,
        0);
    return io::read_safetensors(out).tensors.at("o").values<float>()[5];
  };
  const float once = run_scaled("1");
  EXPECT_NE(once, 0.0F);
  EXPECT_FLOAT_EQ(run_scaled("-2"), -2 * once);
}

TEST_F(Files, AnInputIsNeverTheOutput) {
  const std::string in = write("in.safetensors", layer_file());
  const std::string link = here_.file("link.safetensors");
  std::filesystem::create_symlink("in.safetensors", link);
  for (const std::string& output : {in, link}) {
    const Outcome outcome =
        here_.run({"run", "lightning_attention", "--input", in, "--output", output});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("is an input"));
  }
  EXPECT_TRUE(io::read_safetensors(in).tensors.contains("q"));
}

// Before anything runs: a call may take minutes, and its results would be lost.
TEST_F(Files, AnOutputThatMayNotBeWrittenIsRefusedAndStays) {
  const std::string notes = here_.file("notes.txt");
  std::ofstream(notes) << "Dear diary,";
  for (const std::string& output : {notes, here_.file("no/such"), here_.file("")}) {
    const Outcome outcome = here_.run({"run", "recurrent_attention", "T=8", "H=1", "D=8",
                                       "--output", output, "--policy", "heuristic"});
    EXPECT_EQ(outcome.exit_code, 5) << output;
    EXPECT_THAT(outcome.err, HasSubstr("--output " + output));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(std::filesystem::file_size(notes), 11U);
}

TEST_F(Files, OutputHoldsWhatTheFormatPromises) {
  expected_file();
  const TensorFile out = io::read_safetensors(here_.file("out.safetensors"));
  for (const char* name : {"o", "final_state", "dq", "dk", "dv"})
    EXPECT_TRUE(out.tensors.contains(name)) << name;
  EXPECT_EQ(out.attributes.at("op"), "lightning_attention");
  EXPECT_FALSE(out.tensors.contains("expect.o"));
}

}  // namespace
}  // namespace attune::test
