#include "arguments.hpp"

#include <string>

namespace attune_python {
namespace {

/// The names as Python strings, interned as those of keywords in a program's text are.
const std::array<PyObject*, kParameters>& interned_names() {
  static const std::array<PyObject*, kParameters> names = [] {
    std::array<PyObject*, kParameters> made = {};
    for (std::size_t i = 0; i < kParameters; ++i)
      made[i] = PyUnicode_InternFromString(kParameterNames[i].data());
    return made;
  }();
  return names;
}

std::string text_of(PyObject* unicode) {
  const char* const text = PyUnicode_AsUTF8AndSize(unicode, nullptr);
  if (text == nullptr) throw PythonError();
  return text;
}

Parameter parameter_of(const Function& function, PyObject* keyword) {
  const auto& names = interned_names();
  for (const Parameter parameter : function.parameters()) {
    if (names[static_cast<std::size_t>(parameter)] == keyword) return parameter;
  }
  for (const Parameter parameter : function.parameters()) {
    if (PyUnicode_CompareWithASCIIString(keyword, name_of(parameter)) == 0) return parameter;
  }
  raise(PyExc_TypeError,
        std::string(function.name.data()) + "() has no parameter '" + text_of(keyword) + "'");
}

}  // namespace

const char* name_of(Parameter parameter) {
  return kParameterNames[static_cast<std::size_t>(parameter)].data();  // of a literal
}

Arguments::Arguments(const Function& function, PyObject* const* values, Py_ssize_t count,
                     PyObject* keyword_names)
    : function_(function) {
  const auto positional = static_cast<std::size_t>(count);
  if (positional > function.positional) {
    raise(PyExc_TypeError, std::string(function.name.data()) + "() takes " +
                               std::to_string(function.positional) +
                               " arguments by position, the others by name; " +
                               std::to_string(positional) + " were given");
  }
  std::array<bool, kParameters> seen = {};
  const auto bind = [&](Parameter parameter, PyObject* value) {
    const auto i = static_cast<std::size_t>(parameter);
    if (seen[i]) {
      raise(PyExc_TypeError, std::string(function.name.data()) + "() got two values for '" +
                                 std::string(kParameterNames[i]) + "'");
    }
    seen[i] = true;
    values_[i] = value == Py_None ? nullptr : value;
  };
  for (std::size_t i = 0; i < positional; ++i) bind(function.parameters()[i], values[i]);
  const Py_ssize_t keywords = keyword_names == nullptr ? 0 : PyTuple_Size(keyword_names);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    bind(parameter_of(function, PyTuple_GetItem(keyword_names, i)), values[count + i]);
  }
  for (const Parameter parameter : function.parameters().first(function.required)) {
    if (!given(parameter)) {
      raise(PyExc_TypeError, std::string(function.name.data()) + "() needs the argument '" +
                                 name_of(parameter) + "'");
    }
  }

  if (PyObject* const stream = value(Parameter::kStream)) {
    stream_ = PyLong_AsVoidPtr(stream);
    if (PyErr_Occurred() != nullptr) fail(Parameter::kStream, "an integer");
  } else {
    stream_ = stream_of_cupy(value(Parameter::kQ));
  }
  for (std::size_t i = 0; i < kArrays; ++i) {
    if (values_[i] != nullptr)
      arrays_[i].borrow(function.name.data(), kParameterNames[i].data(), values_[i], stream_);
  }
  if (!given(Parameter::kStream) && stream_ == nullptr) {
    stream_ = current_stream(array(Parameter::kQ));
  }
}

const Array& Arguments::writable(Parameter parameter) const {
  const Array& found = array(parameter);
  if (found.read_only()) {
    raise(PyExc_ValueError, std::string(function()) + ": " + name_of(parameter) +
                                " is written to, and this array is read-only");
  }
  return found;
}

void Arguments::wrote(Parameter parameter) const {
  if (!given(parameter)) return;
  PyObject* const count = array(parameter).producer().count_write;
  if (count != nullptr) Ref::owned(PyObject_CallFunctionObjArgs(count, value(parameter), nullptr));
}

bool Arguments::flag(Parameter parameter) const {
  PyObject* const object = value(parameter);
  if (object == nullptr) return false;
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) throw PythonError();
  return truth != 0;
}

void Arguments::fail(Parameter parameter, const char* what) const {
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
  PyErr_Clear();
  raise(PyExc_TypeError, std::string(function()) + ": " + name_of(parameter) + ": " + what +
                             " is expected, not " + type_name(value(parameter)));
}

std::optional<double> Arguments::number(Parameter parameter) const {
  PyObject* const object = value(parameter);
  if (object == nullptr) return std::nullopt;
  const double number = PyFloat_AsDouble(object);
  if (number == -1.0 && PyErr_Occurred() != nullptr) fail(parameter, "a number");
  return number;
}

std::optional<long long> Arguments::integer(Parameter parameter) const {
  PyObject* const object = value(parameter);
  if (object == nullptr) return std::nullopt;
  const long long number = PyLong_AsLongLong(object);
  if (number == -1 && PyErr_Occurred() != nullptr) fail(parameter, "an integer");
  return number;
}

std::optional<std::uint64_t> Arguments::seed(Parameter parameter) const {
  PyObject* const object = value(parameter);
  if (object == nullptr) return std::nullopt;
  const unsigned long long number = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) fail(parameter, "an integer");
    PyErr_Clear();
    raise(PyExc_ValueError,
          std::string(function()) + ": " + name_of(parameter) + ": 0 to 2^64 - 1 is expected");
  }
  return number;
}

const char* Arguments::text(Parameter parameter) const {
  PyObject* const object = value(parameter);
  if (object == nullptr) return nullptr;
  const char* const text = PyUnicode_AsUTF8AndSize(object, nullptr);
  if (text == nullptr) fail(parameter, "a text");
  return text;
}

}  // namespace attune_python
