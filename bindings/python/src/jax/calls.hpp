// attune's calls as JAX makes them: arrays in one fixed order, of which some are left out, and
// attributes that say which. The handlers and the bound of their workspace read them alike.
//
//   call      arrays in                                                    arrays out
//   forward   q k v, then what is given of g g_gamma gk gv slopes          o [final_state]
//             initial_state cu_seqlens
//   backward  the same, then what is given of d_o dfinal_state             dq dk dv, then the gradient
//                                                                          of each gate and state given
//   pool      q k v states, then what is given of g g_gamma gk gv slopes   o states
//             cu_seqlens initial_slots final_slots snapshot_slots
//   decode    q k v state, then what is given of g g_gamma gk gv slopes    o state
//             slot_indices kept_slots accepted, and of the committed k v
//             g gk gv accepted
//
// What is updated goes in as the fourth array and comes out as the second, in the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/attune.h>

namespace attune_jax {

enum class Call : std::int32_t { kForward, kBackward, kDecode, kPool };

/// Whether the fourth array in is the second one out.
constexpr bool updates_states(Call call) { return call == Call::kDecode || call == Call::kPool; }

/// Bits of Attributes::given: which of the arrays above are there, behind those that always are.
enum Given : std::int64_t {
  kG = 1,
  kGGamma = 2,
  kGk = 4,
  kGv = 8,
  kSlopes = 16,
  kInitialState = 32,
  kCuSeqlens = 64,
  kDo = 128,
  kDFinalState = 256,
  kSlotIndices = 1 << 9,
  kInitialSlots = 1 << 10,
  kFinalSlots = 1 << 11,
  kSnapshotSlots = 1 << 12,
  kKeptSlots = 1 << 13,
  kAccepted = 1 << 14,
  kCommittedK = 1 << 15,
  kCommittedV = 1 << 16,
  kCommittedG = 1 << 17,
  kCommittedGk = 1 << 18,
  kCommittedGv = 1 << 19,
  kCommittedAccepted = 1 << 20,
};

/// Bits of Attributes::options.
enum Option : std::int64_t {
  kReverse = 1,
  kWantFinalState = 2,
  kStateVFirst = 4,  // states are [.., V, K] arrays
  kAllowTf32 = 8,
};

struct Attributes {
  std::int64_t given = 0;
  std::int64_t options = 0;
  double scale = 1;
  std::int64_t layer_idx = 0;
  std::int64_t num_layers = 0;      // 0: no layer
  std::int64_t snapshot_every = 0;  // tokens; 0: no snapshots
  const char* platform = "";        // "": all compete
  const char* config = "";          // "": no override
};

/// One call of attune's over arrays that it borrows. Keep it where it is: it points into itself.
class BoundCall {
 public:
  /// `arrays` as above, in and then out; those out may be left away for a plan. Shapes are not
  /// checked, only their number: attune does that.
  BoundCall(Call call, const Attributes& attributes, std::vector<attune_tensor> arrays);
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;

  /// Whether as many arrays were given as the attributes say.
  bool is_complete() const { return complete_; }

  attune_status run(void* stream, void* workspace, std::size_t workspace_bytes) const;
  /// Chooses, so that run() with `limit` bytes looks up alone. `bound`: NULL, or where
  /// attune_plan_workspace_bound() of `limit` goes, or of more where the default needs more.
  attune_status plan(void* stream, std::size_t limit, std::size_t* bound) const;

 private:
  const attune_tensor* next(bool is_there = true);
  /// The next array, a state.
  const attune_tensor* next_state(bool is_there);
  /// g g_gamma gk gv slopes, and what is no array, of attune_attention_args or attune_decode_args.
  template <class Args>
  void bind_gates(Args& args);
  void bind_attention();
  void bind_gradients();
  void bind_pool();
  void bind_decode();
  attune_call call_on(void* stream) const;

  Call call_;
  Attributes attributes_;
  std::vector<attune_tensor> arrays_;
  std::vector<std::vector<std::int64_t>> transposed_;  // shapes and strides of states
  std::size_t used_ = 0;
  bool complete_ = true;
  attune_attention_args attention_{};
  attune_attention_grads gradients_{};
  attune_decode_args decode_{};
};

}  // namespace attune_jax
