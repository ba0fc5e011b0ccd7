// The suite `cpu`: layers of models on any CPU, beside its ceilings and naive loops.
#include "suites/suites.hpp"

namespace attune::cli {
namespace {

constexpr Bound kOverNaive{3, 4.5};

}  // namespace

/// The shapes of a model's layers, on any CPU: its ceilings are measured in the run. Decode rows
/// have states of 0.25, 1, 8 and 256 MiB, updated in place, and then written to a second buffer.
Suite cpu_suite() {
  const std::vector<std::string_view> forward{"recurrent_attention"};
  const std::vector<std::string_view> backward{"recurrent_attention.backward"};
  const std::vector<std::string_view> decode{"recurrent_decode"};
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

}  // namespace attune::cli
