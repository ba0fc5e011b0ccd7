// Random legal calls of recurrent and lightning attention, and what they give by the formula.
#pragma once

#include <optional>

#include "support/double_recurrence.hpp"
#include "support/drawn_call.hpp"

namespace attune::test {

class DrawnAttention : public DrawnCall {
 public:
  DrawnAttention(std::uint64_t seed, bool is_backward);

  std::int64_t sequences() const { return packed() ? N : B; }
  bool packed() const { return cu_seqlens != nullptr; }
  /// Of batch and token together, b T + t.
  std::int64_t begin(std::int64_t n) const { return packed() ? bounds[std::size_t(n)] : n * T; }
  std::int64_t end(std::int64_t n) const {
    return packed() ? bounds[std::size_t(n) + 1] : (n + 1) * T;
  }

  DoubleRecurrence as_doubles() const;
  ops::RecurrentAttentionOptions options() const;
  ops::LightningAttentionOptions lightning_options() const;

  bool reverse = false;
  bool g_is_gk = false;            // it is given as g [B,T,H,K]
  bool gamma_is_repeated = false;  // g_gamma is [H]
  bool in_place = false;
  std::int64_t N = 0, every = 0, S = 0, M = 0;
  Integers bounds, from, to, kept;
  DrawnTensor *initial = nullptr, *cu_seqlens = nullptr, *states = nullptr,
              *initial_slots = nullptr, *final_slots = nullptr, *snapshot_slots = nullptr;
  DrawnTensor *o = nullptr, *final_state = nullptr;     // forward
  DrawnTensor *d_o = nullptr, *dfinal_state = nullptr;  // backward
  DrawnTensor *dq = nullptr, *dk = nullptr, *dv = nullptr, *dg = nullptr, *dgk = nullptr,
              *dgv = nullptr, *dgamma = nullptr, *dinitial_state = nullptr;

 private:
  Extents rows(std::int64_t heads, std::int64_t channels) const;
  Extents heads() const;
  Extents state_shape() const { return {sequences(), H, K, V}; }
  template <class Options>
  Options shared_options() const;

  void draw_tokens();
  void draw_values(bool is_backward);
  void draw_gates();
  void draw_states(bool is_backward);
  void draw_pool();
  void draw_slots();
  void draw_gradients();
  void spoil_padding(DrawnTensor *tensor, std::int64_t row);

  bool without_batch_ = false;  // q [T,H,K]
  double of_do_ = 0;
};

struct ForwardValues {
  Values o, final_state;  // [B,T,H,V], [N,H,K,V]
  Slots slots;            // [H,K,V] each
};
ForwardValues forward_by_formula(const DrawnAttention &call);

}  // namespace attune::test
