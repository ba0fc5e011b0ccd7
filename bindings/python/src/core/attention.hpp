// recurrent_attention(), gated_linear_attention(), lightning_attention(), their backward passes and
// the decoding functions.
#pragma once

#include "python.hpp"

namespace attune_python {

/// Ended by one without a name.
extern PyMethodDef attention_methods[];

}  // namespace attune_python
