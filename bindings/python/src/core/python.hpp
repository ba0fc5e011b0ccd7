// Python's C API with owners. Inside this module a Python error travels as the C++ exception
// PythonError; guarded() turns it back at the border.
#pragma once

#include <Python.h>  // the limited API of CMakeLists.txt's Py_LIMITED_API

#include <new>
#include <string>
#include <utility>

namespace attune_python {

/// A Python error is set.
struct PythonError {};

/// An owned reference; may be empty.
class Ref {
 public:
  Ref() = default;
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  /// Takes over a new reference, or throws PythonError for the null pointer of a failed call.
  static Ref owned(PyObject* object) {
    if (object == nullptr) throw PythonError();
    return Ref(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

[[noreturn]] inline void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw PythonError();
}

/// Of an object, for messages.
inline std::string type_name(PyObject* object) {
  const Ref name =
      Ref::owned(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  const char* const text = PyUnicode_AsUTF8AndSize(name.get(), nullptr);
  if (text == nullptr) throw PythonError();
  return text;
}

/// Other Python threads run while this lives.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

/// What `body` returns, a new reference; null with a Python error set when it throws.
template <class Body>
PyObject* guarded(const Body& body) noexcept {
  try {
    return body().release();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

inline Ref none() {
  Py_INCREF(Py_None);
  return Ref::owned(Py_None);
}

}  // namespace attune_python
