// What a call over ranks must keep to, on its rank and beside the others.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/ops/distributed_attention.hpp>

#include "attention/attention_run.hpp"

namespace attune::ops::distributed {

template <class Op>
inline constexpr bool kIsBackward = std::is_same_v<Op, RecurrentAttentionBackward>;

template <class... Parts>
[[noreturn]] void refuse(std::string_view op, std::string_view name, const Parts&... what) {
  throw InvalidArgument(str(op, ": ", name, ": ", what...));
}

/// Throws InvalidArgument unless the exchange is of the layout's rank.
void check_exchange(std::string_view op, const attune::distributed::Exchange& exchange, int rank,
                    int ranks);

/// The problem of the rank's walk: the call's, from states that are carried to it. Throws
/// InvalidArgument where the call is not one over ranks, or not the layout's.
template <class Op>
RecurrentAttentionProblem walk_problem(AttentionCall<Op>& call, const SequenceLayout& layout);

/// Whether all ranks' gradients of a constant decay are one.
bool is_shared(const ConstantDecay& gamma);

/// What a rank says of its plan. Zeros where it could not be made.
struct Announcement {
  std::uint64_t made = 0;
  std::uint64_t layout = 0;
  std::uint64_t problem = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Announcement) == 32);

/// Throws where ranks differ, naming the first that does.
void check_alike(std::string_view op, const std::vector<Announcement>& all, int self);

}  // namespace attune::ops::distributed
