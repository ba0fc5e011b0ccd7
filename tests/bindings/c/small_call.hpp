// A small call of attention with g and a state, and what it should give.
#pragma once

#include <attune/attune.hpp>

#include "bindings/c/c_tensor.hpp"
#include "support/heuristic_context.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {

/// By default the heuristic's choice for [1, 40, 2, 16], without a database.
struct SmallCall {
  explicit SmallCall(const Extents& rows = {1, 40, 2, 16}) : rows_(rows) {
    args.q = q_c;
    args.k = k_c;
    args.v = v_c;
    args.g = g_c;
    args.o = o_c;
    args.final_state = final_state_c;
    call.context = context.get();
  }

  Extents rows_;
  Extents states{rows_[0], rows_[2], rows_[3], rows_[3]};
  RandomTensors random{7};
  Tensor q = random(rows_), k = random(rows_), v = random(rows_);
  Tensor g = random.log_decays({rows_[0], rows_[1], rows_[2]});
  Tensor o{DType::kF32, rows_}, final_state{DType::kF32, states};
  CTensor q_c{q}, k_c{k}, v_c{v}, g_c{g}, o_c{o}, final_state_c{final_state};
  UniqueContext context = make_c_context("heuristic");
  attune_attention_args args = sized<attune_attention_args>();
  attune_call call = sized<attune_call>();

  /// The same by C++, by the same choice.
  ops::RecurrentAttentionResult expected() const {
    return ops::recurrent_attention(q, k, v,
                                    {.g = ConstTensorView(g),
                                     .want_final_state = true,
                                     .call = {.context = &heuristic_context()}});
  }
};

inline std::vector<double> values_of(const Tensor& tensor) { return to_doubles(tensor.view()); }

}  // namespace attune::test
