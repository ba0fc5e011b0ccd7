// A block's walk over the windows of a sequence: forward with the state, back with its gradient.
#pragma once

#include "cuda/window/pair_scores.cuh"
#include "cuda/window/states.cuh"

namespace attune::cuda::window {

/// One team's part of a sequence and head.
template <class T, int kTokens>
class Walk {
 public:
  __device__ explicit Walk(const Block& block)
      : b_(block), windows_(static_cast<int>((block.span.length + kTokens - 1) / kTokens)) {}

  /// Asks for the states, which arrive while the first window is staged.
  __device__ void load_states() {
    const ConstStateView initial = state_of(b_.side.initial, b_.sequence);
    const ConstStateView final_gradient = state_of(b_.side.final_gradient, b_.sequence);
    has_initial_ = initial.data != nullptr;
    has_final_gradient_ = final_gradient.data != nullptr;
    __syncthreads();  // what was there has been read, and rows have been found
    const auto load = [&](const ConstStateView& view, int to) {
      if (view.data != nullptr) {
        load_state(b_, view, to);
      } else {
        clear_state(b_, to);
      }
    };
    if (b_.side.keeps_state) load(initial, b_.at.state);
    if (b_.side.keeps_gradient) load(final_gradient, b_.at.gradient);
    copy_async_commit();
  }

  /// All windows with time, and then against it in a backward pass. What both do stands here once:
  /// a block runs through its code a few times at most, and waits for instructions.
  template <bool kBackward>
  __device__ void visit_windows() {
    const StateView out =
        state_of(kBackward ? b_.side.initial_gradient : b_.side.final, b_.sequence);
    const bool has_forward = b_.side.wants_x || (!kBackward && out.data != nullptr);
    const int visits = kBackward ? 2 * windows_ : windows_;
    const int first = has_forward ? 0 : windows_;
    for (int visit = first; visit < visits; ++visit) {
      const bool back = kBackward && visit >= windows_;
      const int window = back ? visits - 1 - visit : visit;
      if (visit == first || visit != windows_) {  // or the last one is staged as it was
        if (visit > first) __syncthreads();       // the window before has been read
        stage(window);
      }
      if (back) {
        write_y(window);
        if (b_.side.wants_gates) write_gates(window);
      } else if (b_.side.wants_x) {
        write_x(window);
      }
      const bool is_end = window + 1 == (back ? 1 : windows_);
      if (is_end && (out.data == nullptr || back != kBackward)) continue;
      const Layout& at = b_.at;
      update_state<kTokens>(b_, back ? at.gradient : at.state, back ? at.read : at.write,
                            back ? at.before : at.after, back ? at.other_read : at.other_write,
                            back ? b_.p.scale : 1.0F, tokens_of(window));
    }
    if (kBackward) put_gamma_term();
    copy_async_wait<0>();  // of a sequence without tokens, nothing has waited yet
    if (out.data == nullptr) return;
    __syncthreads();  // states have arrived, or are up to date
    store_state(b_, out, kBackward ? b_.at.gradient : b_.at.state);
  }

 private:
  __device__ void put_gamma_term() const {
    if (b_.side.gamma_terms == nullptr || b_.warp != 0 || b_.count == 0) return;
    const float sum = warp_sum(static_cast<float>(gamma_gradient_));
    if (lane() != 0) return;
    b_.side.gamma_terms[(b_.sequence * b_.p.heads + b_.head) * b_.side.tiles() + b_.tile] = sum;
  }
  __device__ bool has_state_before(int window) const { return window > 0 || has_initial_; }
  __device__ bool has_gradient_after(int window) const {
    return window + 1 < windows_ || has_final_gradient_;
  }

  __device__ static std::int64_t first_step(int window) { return std::int64_t{window} * kTokens; }
  __device__ int tokens_of(int window) const {
    return static_cast<int>(min(b_.span.length - first_step(window), std::int64_t{kTokens}));
  }

  /// The tokens of a window, their pairs, and the others' rows as states take them.
  __device__ void stage(int window) {
    const bool others =
        windows_ > 1 || b_.is_first_tile;  // or they are as the tile before had them
    if (others) stage_others<T, kTokens>(b_, first_step(window), tokens_of(window));
    stage_own<T, kTokens>(b_, first_step(window));
    __syncthreads();  // rows are there
    score_shares_ = shares_of_score<kTokens>(b_, tokens_of(window));
    if (others) {
      make_scores<kTokens>(b_, tokens_of(window), score_shares_);
      __syncthreads();  // scores are there, the others' rows have been read
      if (b_.side.keeps_state || b_.side.keeps_gradient) decay_others<kTokens>(b_);
    }
    sum_pairs<kTokens>(b_, tokens_of(window), score_shares_);
    copy_async_wait<0>();
    __syncthreads();  // rows are decayed, sums are there, states have arrived
  }

  /// Calls visit(token, step) for the tokens of the warp that are in the sequence.
  template <class Visit>
  __device__ void for_each_token(int window, Visit&& visit) const {
    if (lane() >= b_.count) return;
    for (int token = b_.warp; token < kTokens; token += b_.warps) {
      const std::int64_t step = first_step(window) + token;
      if (step < b_.span.length) visit(token, step);
    }
  }
  __device__ float score_of_itself(int token) const {
    return score<kTokens>(b_, score_shares_, token, token);
  }
  __device__ int channel() const { return b_.first + lane(); }
  /// The lane's channel of a row of [B, T, H, channels].
  __device__ std::int64_t term(std::int64_t step) const {
    return b_.offset(kPlane, step) * b_.side.channels + channel();
  }

  __device__ void write_x(int window) {
    const bool has_state = has_state_before(window);
    if (has_state) {
      multiply_state<kTokens>(b_, b_.at.state, b_.at.other_read);
      __syncthreads();  // shares are there
    }
    for_each_token(window, [&](int token, std::int64_t step) {
      float x = b_.own(b_.at.x, token);
      if (has_state) {
        x = fmaf(b_.p.scale * b_.own(b_.at.before, token), sum_of_shares<kTokens>(b_, token), x);
      }
      b_.own(b_.at.x, token) = x;
      if (b_.side.read_terms != nullptr && window + 1 < windows_) {
        b_.side.read_terms[term(step)] = b_.own(b_.at.read, token) * x;
      }
      if (b_.side.x.data == nullptr) return;
      x = fmaf(score_of_itself(token), b_.own(b_.at.write, token), x);
      static_cast<T*>(b_.side.x.data)[b_.offset(kX, step) + channel()] = from_float<T>(x);
    });
  }

  __device__ void write_y(int window) {
    const bool has_gradient = has_gradient_after(window);
    if (has_gradient) {
      __syncthreads();  // shares of x have been read
      if (b_.side.wants_gates && window + 1 == windows_) meet_at_end(window);
      multiply_state<kTokens>(b_, b_.at.gradient, b_.at.other_write);
      __syncthreads();  // shares are there
    }
    for_each_token(window, [&](int token, std::int64_t step) {
      float y = b_.own(b_.at.y, token);
      if (has_gradient) {
        const float left = b_.own(b_.at.after, token) * sum_of_shares<kTokens>(b_, token);
        // In place of a share that no other thread reads.
        b_.own(b_.at.partial, token) = b_.own(b_.at.write, token) * left;
        y += left;
      }
      if (b_.side.wants_gates) {
        const float read = window + 1 == windows_ || b_.side.read_terms == nullptr
                               ? b_.own(b_.at.read, token) * b_.own(b_.at.x, token)
                               : b_.side.read_terms[term(step)];
        b_.own(b_.at.x, token) = read - b_.own(b_.at.write, token) * y;  // what x adds to gates
      }
      y = fmaf(score_of_itself(token), b_.own(b_.at.read, token), y);
      if (b_.side.y_of_heads != nullptr) {
        b_.side.y_of_heads[term(step)] = y;
      } else {
        static_cast<T*>(b_.side.y.data)[b_.offset(kY, step) + channel()] = from_float<T>(y);
      }
    });
  }

  /// What the gradients of the last window's decays start from, besides what it writes itself.
  __device__ void meet_at_end(int window) {
    if (!has_state_before(window)) return;
    meet_states<kTokens>(b_);
    __syncthreads();  // shares are there
    gate_gradient_ = b_.own(b_.at.before, tokens_of(window) - 1) * sum_of_shares<kTokens>(b_, 0);
    __syncthreads();  // and have been read
  }

  /// Those of the decays, a lane a channel; and their sums over channels. All warps add up alike,
  /// and each writes its tokens'.
  __device__ void write_gates(int window) {
    __syncthreads();  // what tokens add is there
    if (b_.count == 0) return;
    const std::int64_t begin = first_step(window);
    const int count = tokens_of(window);
    if (window + 1 == windows_ && has_gradient_after(window)) {
#pragma unroll 1
      for (int token = 0; token < count; ++token) gate_gradient_ += b_.own(b_.at.partial, token);
    }
#pragma unroll 1
    for (int token = count - 1; token >= 0; --token) {
      const std::int64_t step = begin + token;
      gate_gradient_ += b_.own(b_.at.x, token);
      if (has_no_past(token, step)) gate_gradient_ = 0.0;
      const auto gradient = static_cast<float>(gate_gradient_);
      if (b_.warp == 0) b_.own(b_.at.y, token) = gradient;  // y has been read
      if (b_.side.gate_gradient.data == nullptr || lane() >= b_.count) continue;
      if ((token & (b_.warps - 1)) != b_.warp) continue;  // another warp's
      static_cast<float*>(b_.side.gate_gradient.data)[b_.offset(kGateGradient, step) + channel()] =
          gradient;
    }
    if (b_.side.has_shared_decays && b_.warp == 0) write_shared_gates(begin, count);
  }

  /// Whether there is nothing before a token for its decay to act on.
  __device__ bool has_no_past(int token, std::int64_t step) const {
    if (step == 0 && !has_initial_) return true;
    return b_.own(b_.at.decays, token) * b_.shared[b_.at.shared_decays + token] == 0.0F;
  }

  /// Sums over channels, of all tokens at once: one behind the other they would wait for each other.
  __device__ void write_shared_gates(std::int64_t begin, int count) {
    float sums[16] = {};
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (i < count && lane() < b_.count) sums[i] = b_.own(b_.at.y, i);
    }
    const float sum = sum_of_lanes<kTokens>(sums);
    const int token = lane() / 2;
    if (lane() % 2 != 0 || token >= count) return;
    gamma_gradient_ += sum;
    const std::int64_t step = begin + token;
    if (b_.side.shared_terms != nullptr) {
      const std::int64_t rows = b_.p.batches * b_.p.sequences.tokens * b_.p.heads;
      b_.side.shared_terms[b_.tile * rows + b_.offset(kPlane, step)] = sum;
    } else if (b_.side.shared_gradient.data != nullptr) {
      static_cast<float*>(b_.side.shared_gradient.data)[b_.offset(kSharedGradient, step)] = sum;
    }
  }

  const Block& b_;
  int windows_;  // 2^31 of them would take hours
  bool has_initial_ = false;
  bool has_final_gradient_ = false;
  int score_shares_ = 1;
  double gate_gradient_ = 0.0;   // the lane's channel's, of the tokens that follow
  double gamma_gradient_ = 0.0;  // and the lane's tokens' part of that of g_gamma
};

}  // namespace attune::cuda::window
