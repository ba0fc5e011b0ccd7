// The functions of the module, by the file that has them. Tables are ended by one without a name.
#pragma once

#include "python.hpp"

namespace attune_python {

/// recurrent_attention(), gated_linear_attention(), lightning_attention(), their backward passes
/// and the decoding functions.
extern PyMethodDef attention_methods[];

/// Everything but the ops: devices, databases, policies, scopes, explain and tune. Thin: attune.h's
/// functions as they are, their JSON as text. attune_kernels/__init__.py is what users see.
extern PyMethodDef admin_methods[];

}  // namespace attune_python
