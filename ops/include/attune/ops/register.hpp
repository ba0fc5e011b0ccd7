// Registers attune's ops: recurrent_attention and recurrent_decode, with their backward passes and
// aliases.
#pragma once

#include <attune/core/registry.hpp>

namespace attune::ops {

void register_ops(Registry& registry);

}  // namespace attune::ops
