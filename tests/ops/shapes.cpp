#include "ops/shapes.hpp"

#include <map>
#include <random>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "support/pairwise.hpp"

namespace attune::test {
namespace {

using Texts = std::vector<std::string>;

const Texts kHeads{"H=1", "H=2", "H=4 Hkv=2", "H=4 Hkv=1", "H=3"};
/// One vector or less, a whole number of them, and everything between.
const Texts kChannels{"K=1 V=3",   "K=3 V=1",    "K=17 V=60",   "K=60 V=17",  "K=64 V=32",
                      "K=64 V=64", "K=60 V=100", "K=100 V=128", "K=128 V=64", "K=128 V=128"};
const Texts kDTypes{"dtype=f32", "dtype=f16", "dtype=bf16"};
const Texts kLayouts{"layout=bthd", "layout=strided", "layout=bthd aligned=no"};

/// All combinations of gates, in f32 and, where one is a tensor of tokens, also in q's type.
Texts all_gates() {
  Texts texts{"gate=none", "gate=gamma"};
  for (const char* const rest : {"", "+gamma"}) {
    for (const char* const gates : {"g", "gk", "gv", "g+gk", "g+gv", "gk+gv", "g+gk+gv"}) {
      texts.push_back(str("gate=", gates, rest));
    }
  }
  for (const char* const gates : {"g", "gk+gv", "g+gamma+gk+gv"}) {
    texts.push_back(str("gate=", gates, " gate_dtype=io"));
  }
  texts.push_back("gate=g+gk gate_dtype=mixed");
  return texts;
}

/// Texts of fields as one, where a later value of a field replaces an earlier one.
std::string merged(const Texts& texts) {
  Params params;
  for (const std::string& text : texts) {
    for (const Param& given : parse_params(text, ' ')) {
      std::erase_if(params, [&](const Param& param) { return param.name == given.name; });
      params.push_back(given);
    }
  }
  return to_text(params, ' ');
}

OpShapes recurrent_attention() {
  return {
      .op = ops::RecurrentAttention::kName,
      .factors = {{"T=0", "T=1", "T=2", "T=3", "T=17", "T=64", "T=65", "T=200"},
                  {"B=1", "B=2", "N=1", "N=3", "N=5"},
                  kHeads,
                  kChannels,
                  all_gates(),
                  kDTypes,
                  {"layout=bthd", "layout=bhtd", "layout=strided", "layout=bthd aligned=no"},
                  {"h0=no ht=no", "h0=yes ht=no", "h0=no ht=yes", "h0=yes ht=yes",
                   "h0=yes ht=yes state=bf16", "h0=no ht=yes state=f16 rounding=stochastic",
                   "pool=yes", "pool=yes initial_slots=yes", "pool=yes snapshot_every=64",
                   "pool=yes initial_slots=yes snapshot_every=64 state=bf16 rounding=stochastic",
                   "pool=yes snapshot_every=128 state=f16"},
                  {"reverse=no", "reverse=yes"}},
      .ranges = {{"T", 0, 130}, {"K", 1, 130}, {"V", 1, 130}},
      .problems = {"B=0 T=5 H=2 K=8 V=8", "B=0 T=5 H=2 K=8 V=8 h0=yes ht=yes gate=gk",
                   "B=1 T=5 H=2 K=300 V=8", "B=1 T=9 H=1 K=8 V=600 gate=gv ht=yes"}};
}

/// The gradient of one output may be missing, not of both.
OpShapes recurrent_attention_backward() {
  OpShapes shapes = recurrent_attention();
  shapes.op = ops::RecurrentAttentionBackward::kName;
  shapes.factors[7] = {"h0=no ht=no", "h0=yes ht=no", "h0=no ht=yes", "h0=yes ht=yes",
                       "h0=yes ht=yes do=no"};
  // Channels that kernels take in parts.
  for (const char* const problem :
       {"B=1 T=70 H=1 K=96 V=96 gate=g+gk", "B=1 T=70 H=2 K=256 V=64 gate=gv h0=yes",
        "N=3 T=150 H=2 Hkv=1 K=192 V=192 gate=gk+gamma", "B=1 T=90 H=1 K=64 V=256 gate=gk ht=yes",
        "N=2 T=90 H=1 K=72 V=200 gate=g+gk+gv reverse=yes h0=yes ht=yes",
        "B=1 T=100 H=1 K=256 V=256 gate=gamma+gk+gv h0=yes ht=yes"}) {
    shapes.problems.push_back(str(problem, " dtype=bf16"));
  }
  return shapes;
}

OpShapes one_token_decode() {
  return {.op = ops::RecurrentDecode::kName,
          .factors = {{"B=0", "B=1", "B=3 S=3", "B=3 S=7", "B=17"},
                      {"slots=yes", "slots=no"},
                      kHeads,
                      kChannels,
                      all_gates(),
                      kDTypes,
                      kLayouts},
          .ranges = {{"K", 1, 130}, {"V", 1, 130}},
          .problems = {"B=5 S=5 H=2 K=300 V=8", "B=5 S=5 H=2 K=8 V=600 gate=gk"}};
}

/// One token on a pool in fp32 by itself as well: not every kernel takes more.
OpShapes recurrent_decode() {
  OpShapes shapes = one_token_decode();
  shapes.problems = problems_of(shapes);
  shapes.factors.push_back({"T=0", "T=2", "T=3", "T=7", "T=16", "T=0 kept=yes", "T=3 kept=yes",
                            "T=16 kept=yes", "T=0 R=1", "T=2 R=4", "T=4 R=15", "T=7 R=16"});
  shapes.factors.push_back({"state=f32", "state=f16", "state=bf16", "state=f16 rounding=stochastic",
                            "state=bf16 rounding=stochastic"});
  for (const char* const problem :
       {"B=5 S=4 H=2 K=300 V=8 T=4 state=bf16", "B=5 S=4 H=2 K=8 V=600 gate=gk T=4 R=4",
        "B=9 S=36 H=2 K=64 V=64 T=4 kept=yes"}) {
    shapes.problems.emplace_back(problem);
  }
  return shapes;
}

OpShapes state_summary() {
  OpShapes shapes = recurrent_attention();
  shapes.op = ops::StateSummary::kName;
  shapes.factors[7] = {"h0=no", "h0=yes"};
  shapes.factors.push_back({"inclusive=no", "inclusive=yes"});
  shapes.problems = {"B=0 T=5 H=2 K=8 V=8", "B=0 T=5 H=2 K=8 V=8 h0=yes gate=gk",
                     "B=1 T=5 H=2 K=300 V=8", "B=1 T=9 H=1 K=8 V=600 gate=gv inclusive=yes"};
  return shapes;
}

OpShapes state_fold() {
  return {.op = ops::StateFold::kName,
          .factors = {{"F=1 M=0 L=0", "F=1 M=1 L=1", "F=2 M=3 L=4", "F=7 M=8 L=28"},
                      {"H=1", "H=3"},
                      kChannels,
                      {"gk_sum=no", "gk_sum=yes"},
                      {"gv_sum=no", "gv_sum=yes"},
                      {"h0=no", "h0=yes"}},
          .ranges = {{"K", 1, 130}, {"V", 1, 130}},
          .problems = {"F=0 M=4 L=0 H=2 K=8 V=8", "F=1 M=64 L=64 H=16 K=1 V=1 gk_sum=no"}};
}

}  // namespace

const std::vector<OpShapes>& all_shapes() {
  static const std::vector<OpShapes> shapes{recurrent_attention(), recurrent_attention_backward(),
                                            recurrent_decode(), state_summary(), state_fold()};
  return shapes;
}

std::vector<std::string> problems_of(const OpShapes& shapes) {
  std::vector<std::size_t> counts;
  for (const Texts& factor : shapes.factors) counts.push_back(factor.size());
  Texts problems = shapes.problems;
  for (const std::vector<std::size_t>& row : pairwise(counts)) {
    Texts texts;
    for (std::size_t f = 0; f < row.size(); ++f) texts.push_back(shapes.factors[f][row[f]]);
    problems.push_back(merged(texts));
  }
  return problems;
}

std::string random_problem_of(const OpShapes& shapes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  Texts texts;
  for (const Texts& factor : shapes.factors) texts.push_back(factor[below(factor.size())]);
  for (const Range& range : shapes.ranges) {
    const auto span = static_cast<std::size_t>(range.most - range.least + 1);
    texts.push_back(str(range.field, "=", range.least + static_cast<std::int64_t>(below(span))));
  }
  return merged(texts);
}

}  // namespace attune::test
