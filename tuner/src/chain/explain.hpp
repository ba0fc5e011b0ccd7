// The whole chain in words.
#pragma once

#include "chain/call.hpp"

namespace attune::chain {

/// What select() would do for a call, and what every tier has to say. Changes nothing.
Decision explain(State& state, Call& call);

}  // namespace attune::chain
