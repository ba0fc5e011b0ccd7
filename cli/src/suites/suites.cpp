#include "suites/suites.hpp"

#include <algorithm>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

#include "output/text.hpp"
#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

using Ops = std::vector<std::string_view>;

/// What flash-linear-attention 0.5.2, vLLM's lightning attention and ejkernel were measured on.
/// `must` is ahead of all of them, `goal` near what the memory allows.
Suite h200() {
  const Ops forward{"recurrent_attention"};
  const Ops both_passes{"recurrent_attention", "recurrent_attention.backward"};
  const Ops decode{"recurrent_decode"};
  return {
      .name = "h200",
      .backend = "gpu",
      .copy_bytes_per_us = 4.25e6,
      .rows = {
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma ht=yes", {82, 70}},
          {forward, "B=32 T=512 H=16 D=128 dtype=bf16 gate=gamma ht=yes", {84, 72}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma ht=yes", {125, 98}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gamma ht=yes", {55, 42}},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gamma ht=yes", {130, 90}},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gamma ht=yes", {950, 790}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g ht=yes", {90, 75}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=f32 gate=gamma ht=yes", {400, 250}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=f32 gate=gamma ht=yes", {550, 350}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=f32 gate=gamma ht=yes", {220, 130}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {170, 110}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {260, 150}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gk gate_dtype=io ht=yes", {100, 60}},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {2000, 1200}},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gk gate_dtype=io ht=yes", {300, 150}},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma", {330, 260}},
          {both_passes, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma", {450, 345}},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {1000, 550}},
          // 1.15 times what a constant decay must take: its gate is 4 bytes a token and head.
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g", {380, 0}},
          {decode, "B=1 H=32 D=128 dtype=bf16 gate=gamma", {5, 4}},
          {decode, "B=32 H=32 D=128 dtype=bf16 gate=gamma", {38, 35}},
          {decode, "B=64 H=64 D=128 dtype=bf16 gate=gamma", {142, 136}},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gamma", {280, 272}},
          {decode, "B=128 H=16 D=256 dtype=bf16 gate=gamma", {285, 272}},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io", {285, 275}},
      }};
}

constexpr Bound kOverNaive{3, 4.5};

/// The shapes of a model's layers, on any CPU: its ceilings are measured in the run. Decode rows
/// have states of 0.25, 1, 8 and 256 MiB, updated in place, and then written to a second buffer.
Suite cpu() {
  const Ops forward{"recurrent_attention"};
  const Ops backward{"recurrent_attention.backward"};
  const Ops decode{"recurrent_decode"};
  const Bound d64{0.55, 0.68}, d128{0.65, 0.78};  // of the peak of fp32
  const Bound over_forward{3.1, 2.7};
  const Bound on_two_threads{1.85};
  Suite suite{.name = "cpu", .backend = "cpu", .rows = {}};
  const auto naive = [&](std::string_view about, std::string_view spec, Bound share = {}) {
    suite.rows.push_back({.ops = forward,
                          .spec = spec,
                          .about = about,
                          .speedup = kOverNaive,
                          .share = share,
                          .scaling = on_two_threads});
  };
  naive("gate per channel", "T=64 H=16 D=64 gate=gk", d64);
  naive("gate per channel", "T=512 H=16 D=64 gate=gk", d64);
  naive("gate per channel", "T=2048 H=16 D=64 gate=gk", d64);
  naive("gate per channel", "T=4096 H=16 D=64 gate=gk", d64);
  naive("gate per channel", "T=64 H=16 D=128 gate=gk", d128);
  naive("gate per channel", "T=512 H=16 D=128 gate=gk", d128);
  naive("gate per channel", "T=2048 H=32 D=128 gate=gk", d128);
  naive("gate per head", "T=64 H=16 D=64 gate=g");
  naive("gate per head", "T=512 H=16 D=64 gate=g");
  naive("gate per head", "T=2048 H=16 D=64 gate=g");
  naive("gate per head", "T=4096 H=16 D=64 gate=g");
  naive("gate per head", "T=64 H=16 D=128 gate=g");
  naive("gate per head", "T=512 H=16 D=128 gate=g");
  naive("gate per head", "T=2048 H=32 D=128 gate=g");
  naive("gate per head", "T=512 H=16 D=128 gate=gamma");
  naive("gate per channel, bf16", "T=512 H=16 D=64 gate=gk dtype=bf16");
  naive("gate per channel, bf16", "T=2048 H=16 D=64 gate=gk dtype=bf16");
  naive("gate per channel, bf16", "T=512 H=16 D=128 gate=gk dtype=bf16");
  naive("gate per channel, bf16", "T=2048 H=32 D=128 gate=gk dtype=bf16");
  naive("gate per head, bf16", "T=512 H=16 D=64 gate=g dtype=bf16");
  naive("gate per head, bf16", "T=2048 H=16 D=64 gate=g dtype=bf16");
  naive("gate per head, bf16", "T=512 H=16 D=128 gate=g dtype=bf16");
  naive("gate per head, bf16", "T=2048 H=32 D=128 gate=g dtype=bf16");
  for (const std::string_view spec :
       {"T=512 H=16 D=64 gate=gk", "T=512 H=16 D=64 gate=g", "T=512 H=16 D=128 gate=gk",
        "T=512 H=16 D=128 gate=g", "T=512 H=16 D=128 gate=gk dtype=bf16",
        "T=512 H=16 D=128 gate=g dtype=bf16"}) {
    suite.rows.push_back({.ops = backward,
                          .spec = spec,
                          .about = "backward",
                          .times_forward = over_forward,
                          .scaling = on_two_threads});
  }
  for (const std::string_view spec : {"B=1 H=16 D=64 gate=gk", "B=1 H=16 D=128 gate=gk",
                                      "B=8 H=16 D=128 gate=gk", "B=128 H=32 D=128 gate=gk"}) {
    suite.rows.push_back({.ops = decode, .spec = spec, .about = "decode in place"});
  }
  for (const std::string_view spec :
       {"B=1 T=1 H=16 D=64 gate=gk h0=yes ht=yes", "B=1 T=1 H=16 D=128 gate=gk h0=yes ht=yes",
        "B=8 T=1 H=16 D=128 gate=gk h0=yes ht=yes", "B=128 T=1 H=32 D=128 gate=gk h0=yes ht=yes"}) {
    suite.rows.push_back({.ops = forward, .spec = spec, .about = "decode out of place"});
  }
  for (const std::string_view spec :
       {"T=64 H=4 D=64 gate=gk", "T=256 H=4 D=64 gate=gk", "T=1024 H=4 D=64 gate=gk",
        "T=4096 H=4 D=64 gate=gk", "T=16384 H=4 D=64 gate=gk", "T=65536 H=4 D=64 gate=gk"}) {
    naive("time of a token", spec);
  }
  return suite;
}

bool has_words(const SuiteRow& row, const std::vector<std::string>& wanted) {
  std::vector<std::string> words = words_of(row, row.ops.front());
  words.insert(words.end(), row.ops.begin(), row.ops.end());
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

}  // namespace

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all{h200(), cpu()};
  return all;
}

const Suite& find_suite(std::string_view name) {
  std::vector<std::string> known;
  for (const Suite& suite : suites()) {
    if (suite.name == name) return suite;
    known.emplace_back(suite.name);
  }
  throw UsageError(
      str("--suite '", name, "': expected ", join(known, ", "), did_you_mean(name, known)));
}

std::vector<SuiteRow> rows_with(const Suite& suite, const std::vector<std::string>& words) {
  std::vector<SuiteRow> rows = suite.rows;
  std::erase_if(rows, [&](const SuiteRow& row) { return !has_words(row, words); });
  if (rows.empty()) {
    throw UsageError(str("--suite ", suite.name, ": no row has '", join(words, " "),
                         "' among its ops and fields"));
  }
  return rows;
}

std::string ops_text(const SuiteRow& row) {
  return join(std::vector<std::string>(row.ops.begin(), row.ops.end()), " + ");
}

std::vector<std::string> words_of(const SuiteRow& row, std::string_view op) {
  std::vector<std::string> words{std::string(op)};
  for (const Param& field : parse_params(row.spec, ' ')) {
    words.push_back(str(field.name, '=', field.value));
  }
  return words;
}

}  // namespace attune::cli
