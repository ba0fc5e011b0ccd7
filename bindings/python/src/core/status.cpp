#include "status.hpp"

#include <stdlib.h>

namespace attune_python {
namespace {

struct ErrorClass {
  attune_status status;
  const char* name;
  PyObject** base;
  const char* doc;
  PyObject* type;
};

// PyExc_ names are variables that Python fills: hence their addresses.
ErrorClass error_classes[] = {
    {ATTUNE_UNSUPPORTED, "Unsupported", &PyExc_RuntimeError,
     "No kernel takes the problem; the text has each kernel's reason.", nullptr},
    {ATTUNE_UNAVAILABLE, "Unavailable", &PyExc_LookupError,
     "There is no such device, platform, op or plugin; the text lists what there is.", nullptr},
    {ATTUNE_NOT_TUNED, "NotTuned", &PyExc_RuntimeError,
     "The policy is 'strict', and no database has the problem.", nullptr},
    {ATTUNE_CACHE_ERROR, "CacheError", &PyExc_RuntimeError,
     "A database or another file cannot be read or written.", nullptr},
    {ATTUNE_EXECUTION_ERROR, "ExecutionError", &PyExc_RuntimeError,
     "The work was launched and failed.", nullptr},
    {ATTUNE_DEVICE_FAULT, "DeviceFault", &PyExc_RuntimeError,
     "The device can no longer be used by this process.", nullptr},
};

PyObject* type_of(attune_status status) {
  if (status == ATTUNE_INVALID_ARGUMENT) return PyExc_ValueError;
  if (status == ATTUNE_OUT_OF_MEMORY) return PyExc_MemoryError;
  for (const ErrorClass& error : error_classes) {
    if (error.status == status) return error.type;
  }
  return PyExc_RuntimeError;  // ATTUNE_INTERNAL
}

}  // namespace

void add_errors(PyObject* module) {
  for (ErrorClass& error : error_classes) {
    const std::string name = std::string("attune_kernels.") + error.name;
    error.type =
        Ref::owned(PyErr_NewExceptionWithDoc(name.c_str(), error.doc, *error.base, nullptr))
            .release();
    if (PyModule_AddObjectRef(module, error.name, error.type) < 0) throw PythonError();
  }
}

void check(attune_status status) {
  if (status != ATTUNE_OK) raise(type_of(status), attune_last_error());
}

namespace {
bool done = false;  // guarded by the GIL
}

bool default_policy_is_set() { return done; }

void use_default_policy() {
  if (done) return;
  const char* const wanted = secure_getenv("ATTUNE_POLICY");
  if (wanted == nullptr || *wanted == '\0') check(attune_context_set_policy(nullptr, "db"));
  done = true;
}

}  // namespace attune_python
