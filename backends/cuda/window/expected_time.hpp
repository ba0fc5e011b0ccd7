// About how long a pass by windows takes, fitted to the times of 3,239 configs of 150 problems forward
// and of 2,111 of 74 backward on an H100, with the lengths that packed sequences had.
// An H200 took 1.09 and 1.07 times as long as that says for 124 and 72 others; backward it is taken
// for 1.2, as it was more where other kernels expected little more.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include <attune/core/kernel.hpp>

#include "cuda/walks/walk.hpp"
#include "cuda/window/window.hpp"

namespace attune::cuda::window {

/// Microseconds.
struct Costs {
  double on_h200;  // times all else
  double launch, sums;
  double block;          // of each
  double staged;         // for each channel of a thread, of four tokens of the other side
  double score;          // for each 32 channels of a warp's pair of tokens
  double tile;           // of each, once a window
  double pair, gate;     // for each of a warp's pairs of own tokens, and each token's decays
  double state_channel;  // of each state, once a window, for each channel of a warp
  double state_token;    // more of that for each token of a window
  double load, update;   // for each channel of a warp, of each state read, and where one is written
  double warp;           // share that each four further warps on a multiprocessor slow the others
  double bytes;          // share of the states' traffic that nothing hides
  double apart;          // more of that where tiles that share sectors are one behind the other
};
inline constexpr Costs kForwardCosts{.on_h200 = 1.09,
                                     .launch = 1.16,
                                     .sums = 0,
                                     .block = 1.31,
                                     .staged = 0.338,
                                     .score = 0.0128,
                                     .tile = 1.23,
                                     .pair = 0.0974,
                                     .gate = 0,
                                     .state_channel = 0.00772,
                                     .state_token = 0.221,
                                     .load = 0.0281,
                                     .update = 0.0649,
                                     .warp = 0.0563,
                                     .bytes = 0.615,
                                     .apart = 0.5};
inline constexpr Costs kBackwardCosts{.on_h200 = 1.2,
                                      .launch = 1.6,
                                      .sums = 2.33,
                                      .block = 2.45,
                                      .staged = 0.435,
                                      .score = 0.0148,
                                      .tile = 1.8,
                                      .pair = 0.0904,
                                      .gate = 0.0654,
                                      .state_channel = 0.0179,
                                      .state_token = 0.0677,
                                      .load = 0.0162,
                                      .update = 0.0539,
                                      .warp = 0.0474,
                                      .bytes = 0.981,
                                      .apart = 0};

/// What a pass is asked for.
struct Pass {
  std::int64_t walks = 0;  // of sequences and heads
  double mean = 1;         // tokens of a sequence
  double longest = 1;
  bool unlike = false;    // sequences may be of several lengths
  bool may_vary = false;  // some sequences may have more windows than others
  int tokens = 4;         // of a window
  int teams = 1, warps = 1, tiles = 1;
  bool backward = false;
  bool sums = false;             // a launch behind it
  std::int64_t state_bytes = 0;  // read and written
  bool shares_sectors = false;   // rows of states end within one, so tiles of values share some
};
struct PassSide {
  Side side;
  bool other_gates = false;
  int read_states = 0;  // gradients of states are states, too
  bool writes_state = false;
};

/// Of one block of a side, over a sequence of so many windows.
inline double block_us(const Costs& cost, const Pass& pass, const PassSide& of, double windows) {
  const double tokens = std::clamp<double>(pass.mean, 1, pass.tokens);
  const int block_warps = pass.teams * pass.warps;
  const auto shares = [](double work, int workers) { return std::ceil(work / workers); };
  const double others = of.side.other_channels;
  const double common = cost.staged * shares(others * pass.tokens / 4, 32 * block_warps) *
                            (of.other_gates ? 1.5 : 1.0) +
                        cost.score * shares(tokens, block_warps) * shares(others, 32) * tokens;
  const int states = (of.side.keeps_state ? 1 : 0) + (of.side.keeps_gradient ? 1 : 0);
  const double per_warp = others / pass.warps;
  const double own = cost.tile + cost.pair * shares(tokens, pass.warps) * tokens +
                     (of.side.wants_gates ? cost.gate * tokens : 0) +
                     states * cost.state_channel * per_warp * (1 + cost.state_token * pass.tokens) +
                     of.read_states * cost.load * per_warp +
                     (of.writes_state ? cost.update * per_warp : 0);
  const double rounds = shares(std::min(pass.tiles, of.side.tiles()), pass.teams);
  if (windows == 1) return cost.block + common + rounds * own;
  const double passes = pass.backward && of.side.wants_x ? 2 * windows - 1 : windows;
  return cost.block + rounds * passes * (common + own);
}

/// `bytes`: of a block's shared memory.
inline double pass_us(const Pass& pass, std::span<const PassSide> sides, std::size_t bytes,
                      const DeviceInfo& device) {
  constexpr double kBytesPerUs = 2.8e6;
  constexpr int kResidentWarps = 16;        // by registers
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  constexpr double kUnlike = 0.2;           // of a round, as some blocks end later than others
  const Costs& cost = pass.backward ? kBackwardCosts : kForwardCosts;
  double windows = std::max(std::ceil(pass.mean / pass.tokens), 1.0);
  const double most = std::max(std::ceil(pass.longest / pass.tokens), 1.0);
  if (pass.may_vary) windows = std::max(windows, pass.mean / pass.tokens + 0.5);
  double blocks = 0, work = 0, longest = 0;
  for (const PassSide& each : sides) {
    const auto count = static_cast<double>(pass.walks * ceil_div(each.side.tiles(), pass.tiles));
    blocks += count;
    work += count * block_us(cost, pass, each, windows);
    longest = std::max(longest, block_us(cost, pass, each, most));
  }
  const int block_warps = pass.teams * pass.warps;
  const std::int64_t by_memory = device.l1_bytes / (static_cast<std::int64_t>(bytes) + kReserved);
  const auto resident = static_cast<double>(
      std::max<std::int64_t>(std::min<std::int64_t>(kResidentWarps / block_warps, by_memory), 1));
  const double per_core = blocks / std::max(device.cores, 1);
  const double fours = std::clamp(per_core, 1.0, resident) * block_warps / 4;
  const double rounds =
      (std::max(std::ceil(per_core / resident), 1.0) + (pass.unlike ? kUnlike : 0)) *
      (1 + cost.warp * std::max(fours - 1, 0.0));
  const bool apart =
      pass.shares_sectors && std::min(pass.tiles, sides.back().side.tiles()) > pass.teams;
  const double bytes_share = cost.bytes * (1 + (apart ? cost.apart : 0));
  const double walks = std::max(rounds * work / std::max(blocks, 1.0), longest);
  return cost.on_h200 * (cost.launch + walks + (pass.sums ? cost.sums : 0) +
                         bytes_share * static_cast<double>(pass.state_bytes) / kBytesPerUs);
}

/// Of single tokens' gradients, a block or a cluster each of `walks`: fitted to 20 problems.
struct SingleTokens {
  std::int64_t walks = 0;
  TokenShares shares;
  bool h0 = false, ht = false;
  bool sums = false;             // a launch behind it
  std::int64_t state_bytes = 0;  // read and written
};
inline double single_tokens_us(const SingleTokens& pass, const DeviceInfo& device) {
  constexpr double kBytesPerUs = 2e6;
  constexpr double kFirst = 0.73, kNext = 3;          // of a block, and of one behind another
  constexpr double kExchange = 2.6;                   // of a cluster's blocks
  constexpr double kInitial = 2.5, kGradient = 0.85;  // of a state's rows that a warp has at once
  const std::int64_t resident = std::max(kMostWarpsOfToken / pass.shares.warps(), 1);
  const auto rounds = static_cast<double>(
      ceil_div(pass.walks * pass.shares.blocks, resident * std::max(device.cores, 1)));
  const double exchange = pass.shares.blocks > 1 ? kExchange : 0;
  const double of_turn = (pass.h0 ? kInitial : 0) + (pass.ht ? kGradient : 0);
  return kBackwardCosts.launch + (pass.sums ? kBackwardCosts.sums : 0) +
         std::max(kFirst + exchange + kNext * (rounds - 1) + of_turn * pass.shares.turns() * rounds,
                  static_cast<double>(pass.state_bytes) / kBytesPerUs);
}

}  // namespace attune::cuda::window
