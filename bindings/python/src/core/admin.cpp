#include <vector>

#include <attune/attune.h>

#include "methods.hpp"
#include "status.hpp"

namespace attune_python {
namespace {

constexpr const char* kScope = "attune_scope";
constexpr const char* kScopes = "attune_scopes";

void parse(PyObject* arguments, const char* format, auto... out) {
  if (PyArg_ParseTuple(arguments, format, out...) == 0) throw PythonError();
}

/// Text that attune gave out, as a Python string.
Ref taken(char* text) {
  PyObject* const string = PyUnicode_FromString(text);
  attune_free(text);
  return Ref::owned(string);
}

using Report = attune_status (*)(attune_context*, char**);

template <Report kReport>
PyObject* report(PyObject*, PyObject*) {
  return guarded([] {
    use_default_policy();
    char* json = nullptr;
    check(kReport(nullptr, &json));
    return taken(json);
  });
}

PyObject* version(PyObject*, PyObject*) {
  return guarded([] { return Ref::owned(PyUnicode_FromString(attune_version())); });
}

PyObject* prepare(PyObject*, PyObject*) {
  return guarded([] {
    use_default_policy();
    return none();
  });
}

PyObject* is_prepared(PyObject*, PyObject*) {
  return guarded([] { return Ref::owned(PyBool_FromLong(default_policy_is_set() ? 1 : 0)); });
}

PyObject* set_policy(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char* policy = nullptr;
    parse(arguments, "s", &policy);
    use_default_policy();
    check(attune_context_set_policy(nullptr, policy));
    return none();
  });
}

PyObject* reload(PyObject*, PyObject*) {
  return guarded([] {
    use_default_policy();
    check(attune_context_reload(nullptr));
    return none();
  });
}

PyObject* minimax_slopes(PyObject*, PyObject* arguments) {
  return guarded([&] {
    long long heads = 0, layer = 0, layers = 0;
    parse(arguments, "LLL", &heads, &layer, &layers);
    std::vector<float> slopes(heads > 0 && heads < (1 << 20) ? static_cast<std::size_t>(heads) : 0);
    check(attune_minimax_slopes(heads, layer, layers, slopes.data()));
    Ref list = Ref::owned(PyList_New(0));
    for (const float slope : slopes) {
      const Ref number = Ref::owned(PyFloat_FromDouble(static_cast<double>(slope)));
      if (PyList_Append(list.get(), number.get()) < 0) throw PythonError();
    }
    return list;
  });
}

// --- scopes: capsules, whose name says which -----------------------------------------------------

template <class Object>
Object* from_capsule(PyObject* capsule, const char* name) {
  void* const object = PyCapsule_GetPointer(capsule, name);
  if (object == nullptr) throw PythonError();
  return static_cast<Object*>(object);
}

Ref to_capsule(attune_scope* scope) { return Ref::owned(PyCapsule_New(scope, kScope, nullptr)); }

PyObject* begin_policy(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char* policy = nullptr;
    parse(arguments, "s", &policy);
    use_default_policy();
    attune_scope* scope = nullptr;
    check(attune_scope_policy(policy, &scope));
    return to_capsule(scope);
  });
}

PyObject* begin_overlay(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char *op = nullptr, *config = nullptr, *problem = nullptr;
    parse(arguments, "ssz", &op, &config, &problem);
    use_default_policy();
    attune_scope* scope = nullptr;
    check(attune_scope_overlay(op, config, problem, &scope));
    return to_capsule(scope);
  });
}

PyObject* attach_scopes(PyObject*, PyObject* capsule) {
  return guarded([&] {
    attune_scope* scope = nullptr;
    check(attune_scopes_attach(from_capsule<attune_scopes>(capsule, kScopes), &scope));
    return to_capsule(scope);
  });
}

PyObject* end_scope(PyObject*, PyObject* capsule) {
  return guarded([&] {
    check(attune_scope_end(from_capsule<attune_scope>(capsule, kScope)));
    // A second end would be of memory that is gone: the name no longer fits.
    if (PyCapsule_SetName(capsule, "ended attune_scope") != 0) throw PythonError();
    return none();
  });
}

PyObject* capture_scopes(PyObject*, PyObject*) {
  return guarded([] {
    attune_scopes* scopes = nullptr;
    check(attune_scopes_capture(&scopes));
    return Ref::owned(PyCapsule_New(scopes, kScopes, [](PyObject* capsule) {
      attune_scopes_destroy(static_cast<attune_scopes*>(PyCapsule_GetPointer(capsule, kScopes)));
    }));
  });
}

// --- why a choice, and making one ----------------------------------------------------------------

/// (op, problem, device type, device index, platform, config): what the three functions begin with.
struct Question {
  const char *op = nullptr, *problem = nullptr;
  attune_device device = {};
  attune_call call = {};
};

Question question(const char* op, const char* problem, int type, int index, const char* platform,
                  const char* config) {
  Question question = {op, problem, {type, index}, {}};
  question.call.struct_size = sizeof question.call;
  question.call.platform = platform;
  question.call.config = config;
  return question;
}

PyObject* explain(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char *op = nullptr, *problem = nullptr, *platform = nullptr, *config = nullptr;
    int type = 0, index = 0;
    parse(arguments, "ssiizz", &op, &problem, &type, &index, &platform, &config);
    use_default_policy();
    const Question ask = question(op, problem, type, index, platform, config);
    char* json = nullptr;
    check(attune_explain(ask.op, ask.problem, ask.device, &ask.call, &json));
    return taken(json);
  });
}

PyObject* forget(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char *op = nullptr, *problem = nullptr, *platform = nullptr;
    int type = 0, index = 0;
    parse(arguments, "ssiiz", &op, &problem, &type, &index, &platform);
    use_default_policy();
    const Question ask = question(op, problem, type, index, platform, nullptr);
    check(attune_forget(ask.op, ask.problem, ask.device, &ask.call));
    return none();
  });
}

/// Control-C, asked for between samples: 1 with a Python error set.
int interrupted(void*) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int stop = PyErr_CheckSignals() != 0 ? 1 : 0;
  PyGILState_Release(state);
  return stop;
}

PyObject* tune(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char *op = nullptr, *problem = nullptr, *platform = nullptr;
    int type = 0, index = 0;
    long long budget_ms = 0;
    parse(arguments, "ssiizL", &op, &problem, &type, &index, &platform, &budget_ms);
    use_default_policy();
    const Question ask = question(op, problem, type, index, platform, nullptr);
    attune_tune_options options = {};
    options.struct_size = sizeof options;
    options.budget_ms = budget_ms;
    options.stop = interrupted;
    char* json = nullptr;
    attune_status status = ATTUNE_OK;
    {
      const WithoutGil others_run;
      status = attune_tune(ask.op, ask.problem, ask.device, &ask.call, &options, &json);
    }
    if (PyErr_Occurred() != nullptr) {
      if (status == ATTUNE_OK) attune_free(json);
      throw PythonError();
    }
    check(status);
    return taken(json);
  });
}

}  // namespace

PyMethodDef admin_methods[] = {
    {"version", version, METH_NOARGS, nullptr},
    {"prepare", prepare, METH_NOARGS, nullptr},
    {"is_prepared", is_prepared, METH_NOARGS, nullptr},
    {"set_policy", set_policy, METH_VARARGS, nullptr},
    {"reload", reload, METH_NOARGS,
     "reload()\n--\n\n"
     "Reads databases again that were replaced or changed by others, while threads go on."},
    {"devices", report<attune_devices>, METH_NOARGS, nullptr},
    {"databases", report<attune_databases>, METH_NOARGS, nullptr},
    {"counters", report<attune_counters>, METH_NOARGS, nullptr},
    {"minimax_slopes", minimax_slopes, METH_VARARGS,
     "minimax_slopes(heads, layer, layers, /)\n--\n\n"
     "The slopes of MiniMax's lightning layers, a list: slopes[h] = 2^(-8 (h+1)/heads)\n"
     "(1 - layer/(layers-1) + 1e-5), interleaved as ALiBi's where `heads` is no power of two."},
    {"begin_policy", begin_policy, METH_VARARGS, nullptr},
    {"begin_overlay", begin_overlay, METH_VARARGS, nullptr},
    {"capture_scopes", capture_scopes, METH_NOARGS, nullptr},
    {"attach_scopes", attach_scopes, METH_O, nullptr},
    {"end_scope", end_scope, METH_O, nullptr},
    {"explain", explain, METH_VARARGS, nullptr},
    {"forget", forget, METH_VARARGS, nullptr},
    {"tune", tune, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace attune_python
