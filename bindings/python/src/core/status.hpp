// attune's status codes as Python errors, and the context of Python's calls.
#pragma once

#include <attune/attune.h>

#include "python.hpp"

namespace attune_python {

/// Adds the classes of errors to the module.
void add_errors(PyObject* module);

/// Throws the Python error of a status that is not ATTUNE_OK, with attune_last_error()'s text.
void check(attune_status status);

/// Gives the process's own context Python's default policy, `db`, unless ATTUNE_POLICY says
/// another.
/// Before the first call of this process; costs nothing afterwards.
void use_default_policy();
bool default_policy_is_set();

}  // namespace attune_python
