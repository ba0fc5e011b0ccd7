#include "suites/serve_suite.hpp"

#include <algorithm>
#include <random>

#include <attune/core/error.hpp>

namespace attune::cli {
namespace {

constexpr Bound kShareOfFloor{0.92, 0};  // of what is bound by its states alone
constexpr Bound kHalfOfTheBytes{0.55, 0};
constexpr Bound kOfOneToken{1.10, 0};
constexpr Bound kOfTheParts{1.10, 0};
constexpr Bound kBesideTheirBytes{1.05, 0};
constexpr Bound kOfDenseStates{1.02, 0};
constexpr std::int64_t kFillsTheDevice = 64;  // rows

std::string states_word(const ServingStep& step) { return str("state=", to_string(step.states)); }

std::vector<std::int64_t> lengths(std::size_t rows, std::size_t prompts, std::int64_t tokens) {
  std::vector<std::int64_t> all(rows, 1);
  all.insert(all.end(), prompts, tokens);
  return all;
}

/// Half of them decode, a quarter has drafts of 2 to 16 tokens, a quarter prompts of 64 to 4096; in
/// no order.
std::vector<std::int64_t> ragged_lengths(std::size_t count) {
  std::mt19937 random(20);
  std::vector<std::int64_t> all;
  for (std::size_t n = 0; n < count; ++n) {
    const auto prompt = std::int64_t{1} << (6 + random() % 6);
    if (n % 4 < 2) all.push_back(1);
    if (n % 4 == 2) all.push_back(2 + random() % 15);
    if (n % 4 == 3) all.push_back(prompt + random() % prompt);
  }
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

void add_decode(bool on_host, std::vector<ServingRow>& rows) {
  for (const std::int64_t count : {1, 4, 16, 64, 128, 256, 512, 1024}) {
    if (on_host && count > 256) continue;
    const ServingStep wide{.rows = count};
    ServingStep half = wide;
    half.states = DType::kBF16;
    const bool fills = count >= kFillsTheDevice;
    rows.push_back({.about = str("decode B=", count, ' ', states_word(wide)), .step = wide});
    rows.push_back({.about = str("decode B=", count, ' ', states_word(half)),
                    .step = half,
                    .beside = "f32 states",
                    .parts = {wide},
                    .share = fills ? kShareOfFloor : Bound{},
                    .ratio = fills ? kHalfOfTheBytes : Bound{}});
  }
}

void add_tokens(std::vector<ServingRow>& rows) {
  struct Named {
    StepWay way;
    const char* name;
  };
  const auto add = [&](const ServingStep& step, const char* way) {
    ServingStep one{.rows = step.rows, .states = step.states};
    one.gates_channels = step.gates_channels;
    const bool is_held = step.way == StepWay::kReplay && step.tokens == 4;
    rows.push_back({.about = str("tokens ", way, " B=", step.rows, " T=", step.tokens, ' ',
                                 states_word(step), step.gates_channels ? " gate=gk" : ""),
                    .step = step,
                    .beside = "one token",
                    .parts = {one},
                    .share = step.way == StepWay::kKept ? kShareOfFloor : Bound{},
                    .ratio = is_held ? kOfOneToken : Bound{}});
  };
  for (const DType states : {DType::kF32, DType::kBF16}) {
    for (const auto& [way, name] : {Named{StepWay::kPlain, "plain"}, Named{StepWay::kKept, "kept"},
                                    Named{StepWay::kReplay, "replay"}}) {
      for (const std::int64_t tokens : {2, 4, 8}) {
        add({.rows = kFillsTheDevice, .tokens = tokens, .way = way, .states = states}, name);
      }
    }
  }
  add({.rows = kFillsTheDevice, .tokens = 4, .way = StepWay::kReplay, .gates_channels = true},
      "replay");
}

void add_mixed(std::vector<ServingRow>& rows) {
  const auto add = [&](std::string_view batch, ServingStep step, Bound ratio) {
    rows.push_back({.about = str("mixed ", batch, ' ', states_word(step),
                                 step.gates_channels ? " gate=gk" : ""),
                    .step = step,
                    .beside = "prompts alone + rows alone",
                    .parts = parts_of(step),
                    .ratio = ratio});
  };
  for (const bool gates_channels : {false, true}) {
    for (const DType states : {DType::kF32, DType::kBF16}) {
      ServingStep step{.states = states, .gates_channels = gates_channels};
      step.lengths = lengths(256, 2, 2048);
      add("256x1+2x2048", step, kOfTheParts);
      step.lengths = lengths(64, 8, 512);
      add("64x1+8x512", step, kOfTheParts);
      step.lengths = ragged_lengths(64);
      add("ragged", step, kOfTheParts);
    }
  }
}

void add_prompts(std::vector<ServingRow>& rows) {
  for (const bool gates_channels : {false, true}) {
    ServingStep pool{.lengths = lengths(0, 8, 2048), .gates_channels = gates_channels};
    ServingStep dense = pool, snapshots = pool;
    dense.has_pool = false;
    snapshots.snapshot_every = 512;
    const std::string batch = gates_channels ? "8x2048 gate=gk" : "8x2048";
    rows.push_back({.about = str("slots ", batch),
                    .step = pool,
                    .beside = "dense states",
                    .parts = {dense},
                    .ratio = kOfDenseStates});
    rows.push_back({.about = str("snapshots ", batch, " every=512"),
                    .step = snapshots,
                    .beside = "none + floor of theirs",
                    .parts = {pool},
                    .plus_bytes = true,
                    .ratio = kBesideTheirBytes});
  }
}

}  // namespace

std::vector<ServingRow> serving_rows(bool on_host) {
  std::vector<ServingRow> rows;
  add_decode(on_host, rows);
  add_tokens(rows);
  add_mixed(rows);
  add_prompts(rows);
  return rows;
}

LayerSizes serving_layer(bool on_host) {
  return on_host ? LayerSizes{.heads = 8, .channels = 128}
                 : LayerSizes{.heads = 32, .channels = 128};
}

}  // namespace attune::cli
