// Attention of whole sequences, by one walk and by ranks that have pieces of them, both passes.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/ops/distributed_attention.hpp>

#include "support/heuristic_context.hpp"

namespace attune::test {

struct WholeGates {
  bool g = false, gamma = false, gk = false, gv = false;
};

/// What a call is made of. Tensors of tokens are [T, heads, width], dense.
struct WholeSequences {
  enum class Name { kRecurrent, kGated, kSlopes, kLayer };  // which op, and where decays come from

  Name name = Name::kRecurrent;
  std::vector<std::int64_t> cu_seqlens = {};
  std::int64_t H = 2, Hkv = 2, K = 3, V = 2;
  bool reverse = false;
  bool states = false;  // initial ones and gradients of final ones are given
  WholeGates gates = {};
  DType dtype = DType::kF32;  // of q, k, v, o and d_o; or bf16
  bool heads_first = false;   // tensors of tokens lie [heads, T, width]
  bool gamma_rows = false;    // gamma is [N, H]
  std::vector<float> q = {}, k = {}, v = {}, g = {}, gk = {}, gv = {}, d_o = {};
  std::vector<float> gamma = {};                             // g_gamma, or slopes
  std::vector<float> initial_state = {}, dfinal_state = {};  // [N, H, K, V]

  std::int64_t tokens() const { return cu_seqlens.back(); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
};

/// Fills the tensors of sizes that are set. `strong`: decays down to exp(-30), with -inf among
/// them.
void fill(WholeSequences& of, const WholeGates& gates, bool strong, unsigned seed);

/// o, final_state, dq, dk, dv and the gradient of each gate and state that is given.
using Results = std::map<std::string, std::vector<float>, std::less<>>;

/// One walk by the oracle.
Results by_one_walk(const WholeSequences& of);

/// The same from all ranks, each a thread, all on one device. What ranks must not read is NaN.
/// `collectives` takes how many each rank took part in, from the making of its two plans on.
Results by_ranks(const WholeSequences& of, const ops::distributed::TokenOwners& owners,
                 std::vector<int>* collectives = nullptr, const Device& device = cpu_device(),
                 Context& context = heuristic_context());

/// The first result that is off by more than one rank may be, with its error; "" when there is
/// none.
std::string first_fault(const WholeSequences& of, const Results& got, const Results& expected);

}  // namespace attune::test
