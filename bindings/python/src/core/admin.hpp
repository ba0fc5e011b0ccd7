// Everything but the ops: devices, databases, policies, scopes, explain and tune. Thin: attune.h's
// functions as they are, their JSON as text. attune_kernels/__init__.py is what users see.
#pragma once

#include "python.hpp"

namespace attune_python {

/// Ended by one without a name.
extern PyMethodDef admin_methods[];

}  // namespace attune_python
