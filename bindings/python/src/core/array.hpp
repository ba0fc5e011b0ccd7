// Arrays of any library that speaks DLPack: borrowed as arguments, made as results.
//
// A type with a C exchange table (__dlpack_c_exchange_api__: PyTorch 2.10 and newer) is read and
// made without a Python call. Others are read through __dlpack__ and made by their array
// namespace's empty(); JAX's, which are immutable, over memory of ours that from_dlpack() takes.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/attune.h>

#include "dlpack.hpp"
#include "python.hpp"

namespace attune_python {

/// What is known of a type of arrays; kept for good.
struct Producer {
  PyObject* type = nullptr;
  const dlpack::ExchangeApi* exchange = nullptr;
  bool immutable = false;
  bool on_cpu = false;  // all of its arrays are
  bool is_cupy = false;
  bool tracks_gradients = false;  // an array may have requires_grad, as PyTorch's
  /// Called with an array that was written to: PyTorch's increment_version(), by which a backward
  /// pass knows that what it saved is there no more. Null for others.
  PyObject* count_write = nullptr;
  /// empty() and float32 of its array namespace, asked for when a result is made.
  mutable PyObject* empty = nullptr;
  mutable PyObject* float32 = nullptr;
};

/// An argument, borrowed while this lives.
class Array {
 public:
  /// Throws TypeError for what is no array, and ValueError for one that cannot be shared; both name
  /// the function and the argument. `stream` is where work on it will be queued, for arrays of a
  /// GPU that know no current one.
  void borrow(const char* function, const char* name, PyObject* object, void* stream);

  bool given() const { return producer_ != nullptr; }
  /// Null when not given, as attune.h wants it.
  const attune_tensor* get() const { return given() ? &tensor_ : nullptr; }
  const attune_tensor& tensor() const { return tensor_; }
  const Producer& producer() const { return *producer_; }
  bool read_only() const { return read_only_; }

 private:
  attune_tensor tensor_ = {};
  const Producer* producer_ = nullptr;
  Ref capsule_;  // owns the memory's description, without an exchange table
  bool read_only_ = false;
};

/// The stream that work on the array is queued on by its library, where that has an exchange table;
/// null otherwise, and for a CPU.
void* current_stream(const Array& array);

/// CuPy's current stream where `object` is an array of CuPy's, which has no table to ask and is
/// told when it is borrowed; null for others.
void* stream_of_cupy(PyObject* object);

/// A result of the kind and device of another array.
class NewArray {
 public:
  NewArray() = default;
  ~NewArray();
  NewArray(const NewArray&) = delete;
  NewArray& operator=(const NewArray&) = delete;

  /// `typed_like`: an array of the same library whose type the result has, null for f32; `dtype`
  /// says the same. Throws what the library raises, MemoryError when there is no memory.
  void make(const Array& like, PyObject* like_object, PyObject* typed_like, attune_dtype dtype,
            std::vector<std::int64_t> shape);

  const attune_tensor* get() const { return made_ ? tensor_ : nullptr; }
  /// The array as a Python object, with what was written to it.
  Ref finish();

 private:
  bool made_ = false;
  const attune_tensor* tensor_ = nullptr;
  const Producer* producer_ = nullptr;
  dlpack::ManagedTensorVersioned* managed_ = nullptr;  // ours until finish()
  dlpack::ManagedTensor* own_ = nullptr;               // likewise, for an immutable array
  Ref like_;                                           // of its library
  Ref object_;                                         // when the library made it at once
  Array view_;
};

}  // namespace attune_python
