// attune_kernels._core: attune.h as a Python extension, by the limited API of Python 3.11. It
// includes no header of attune's but that one.
#include "methods.hpp"
#include "python.hpp"
#include "status.hpp"

PyMODINIT_FUNC PyInit__core() {
  using namespace attune_python;
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "_core",
                                   "attune.h, for attune_kernels.",
                                   -1,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  return guarded([] {
    Ref module = Ref::owned(PyModule_Create(&definition));
    for (PyMethodDef* methods : {attention_methods, admin_methods}) {
      if (PyModule_AddFunctions(module.get(), methods) < 0) throw PythonError();
    }
    add_errors(module.get());
    return module;
  });
}
