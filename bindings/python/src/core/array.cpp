#include "array.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace attune_python {
namespace {

/// "recurrent_attention: q: " and the text of the Python error that is set, as an error of `type`.
[[noreturn]] void raise_about(const char* function, const char* name, PyObject* type) {
  PyObject *error_type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&error_type, &value, &trace);
  std::string text = "cannot be read through DLPack";
  if (value != nullptr) {
    if (PyObject* const str = PyObject_Str(value)) {
      if (const char* const utf8 = PyUnicode_AsUTF8AndSize(str, nullptr)) text = utf8;
      Py_DECREF(str);
    }
  }
  PyErr_Clear();
  Py_XDECREF(error_type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  raise(type, std::string(function) + ": " + name + ": " + text);
}

bool is_from(PyObject* type, const char* library) {
  const Ref module = Ref::owned(PyObject_GetAttrString(type, "__module__"));
  const char* const text = PyUnicode_AsUTF8AndSize(module.get(), nullptr);
  if (text == nullptr) throw PythonError();
  return std::strncmp(text, library, std::strlen(library)) == 0;
}

/// Looks at a type once. Null when its objects are no arrays, or masked ones: through DLPack they
/// share what is behind the mask.
std::unique_ptr<Producer> examine(PyObject* type) {
  auto producer = std::make_unique<Producer>();
  if (PyObject* const capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__")) {
    const Ref owner = Ref::owned(capsule);
    auto* api = static_cast<const dlpack::ExchangeApi*>(
        PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    if (api == nullptr) throw PythonError();
    while (api != nullptr && api->version.major != 1) api = api->previous;
    producer->exchange = api;
  } else {
    PyErr_Clear();
  }
  if (producer->exchange == nullptr && PyObject_HasAttrString(type, "__dlpack__") == 0) {
    return nullptr;
  }
  producer->immutable = is_from(type, "jax");
  producer->on_cpu = is_from(type, "numpy");
  if (producer->on_cpu && PyObject_HasAttrString(type, "mask") != 0) return nullptr;
  producer->is_cupy = is_from(type, "cupy");
  producer->tracks_gradients = PyObject_HasAttrString(type, "requires_grad") != 0;
  if (PyObject_HasAttrString(type, "_version") != 0) {
    const Ref graph = Ref::owned(PyImport_ImportModule("torch.autograd.graph"));
    producer->count_write =
        Ref::owned(PyObject_GetAttrString(graph.get(), "increment_version")).release();
  }
  Py_INCREF(type);
  producer->type = type;
  return producer;
}

/// The producer of a type, from a list that only grows; guarded by the GIL.
const Producer* producer_of(PyObject* object) {
  static std::vector<std::unique_ptr<Producer>> known;
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  for (const auto& producer : known) {
    if (producer->type == type) return producer.get();
  }
  auto producer = examine(type);
  if (producer == nullptr) return nullptr;
  known.push_back(std::move(producer));
  return known.back().get();
}

bool is_gpu(std::int64_t device_type) {
  return device_type == ATTUNE_CUDA || device_type == ATTUNE_CUDA_MANAGED;
}

/// __dlpack_device__()[0]
long long device_type_of(PyObject* object) {
  const Ref device = Ref::owned(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  const Ref type = Ref::owned(PySequence_GetItem(device.get(), 0));
  const long long device_type = PyLong_AsLongLong(type.get());
  if (device_type == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return device_type;
}

/// __dlpack__'s capsule. Arrays of a GPU are told the stream that will read them: 1 is CUDA's
/// default stream, which attune.h calls null.
Ref dlpack_capsule(PyObject* object, const Producer& producer, void* stream) {
  static PyObject* const no_arguments = PyTuple_New(0);
  static PyObject* const version = Py_BuildValue("{s:(ii)}", "max_version", 1, 3);
  static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
  const Ref method = Ref::owned(PyObject_GetAttr(object, name));
  Ref keywords;
  if (!producer.on_cpu && is_gpu(device_type_of(object))) {
    keywords = Ref::owned(PyDict_Copy(version));
    const Ref number =
        Ref::owned(stream == nullptr ? PyLong_FromLong(1) : PyLong_FromVoidPtr(stream));
    if (PyDict_SetItemString(keywords.get(), "stream", number.get()) < 0) throw PythonError();
  }
  PyObject* const with = keywords ? keywords.get() : version;
  if (PyObject* const capsule = PyObject_Call(method.get(), no_arguments, with)) {
    return Ref::owned(capsule);
  }
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
  PyErr_Clear();  // a library from before DLPack 1.0 knows no max_version
  if (keywords && PyDict_DelItemString(keywords.get(), "max_version") < 0) throw PythonError();
  return Ref::owned(PyObject_Call(method.get(), no_arguments, keywords.get()));
}

bool requires_gradient(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const Ref answer = Ref::owned(PyObject_GetAttr(object, name));
  return answer.get() == Py_True;
}

}  // namespace

void Array::borrow(const char* function, const char* name, PyObject* object, void* stream) {
  const Producer* const producer = producer_of(object);
  if (producer == nullptr) {
    raise(PyExc_TypeError, std::string(function) + ": " + name +
                               ": an array that speaks DLPack is expected (NumPy, PyTorch, CuPy, "
                               "JAX, ..), not " +
                               type_name(object));
  }
  if (producer->tracks_gradients && requires_gradient(object)) {
    raise(PyExc_ValueError, std::string(function) + ": " + name +
                                " requires a gradient, which would be lost: use "
                                "attune_kernels.torch, or give it detached");
  }
  if (producer->exchange != nullptr) {
    if (producer->exchange->tensor_from_object(object, &tensor_) != 0) {
      raise_about(function, name, PyExc_ValueError);
    }
  } else {
    try {
      capsule_ = dlpack_capsule(object, *producer, stream);
    } catch (const PythonError&) {
      raise_about(function, name, PyExc_ValueError);
    }
    if (PyCapsule_IsValid(capsule_.get(), "dltensor_versioned") != 0) {
      const auto* const managed = static_cast<const dlpack::ManagedTensorVersioned*>(
          PyCapsule_GetPointer(capsule_.get(), "dltensor_versioned"));
      tensor_ = managed->tensor;
      read_only_ = (managed->flags & dlpack::kReadOnly) != 0;
    } else {
      const auto* const managed = static_cast<const dlpack::ManagedTensor*>(
          PyCapsule_GetPointer(capsule_.get(), "dltensor"));
      if (managed == nullptr) raise_about(function, name, PyExc_ValueError);
      tensor_ = managed->tensor;
    }
    read_only_ = read_only_ || producer->immutable;
  }
  producer_ = producer;
}

void* stream_of_cupy(PyObject* object) {
  const Producer* const producer = object == nullptr ? nullptr : producer_of(object);
  if (producer == nullptr || !producer->is_cupy) return nullptr;
  static PyObject* const ask = [] {
    const Ref cuda = Ref::owned(PyImport_ImportModule("cupy.cuda"));
    return Ref::owned(PyObject_GetAttrString(cuda.get(), "get_current_stream")).release();
  }();
  const Ref stream = Ref::owned(PyObject_CallNoArgs(ask));
  const Ref pointer = Ref::owned(PyObject_GetAttrString(stream.get(), "ptr"));
  void* const handle = PyLong_AsVoidPtr(pointer.get());
  if (PyErr_Occurred() != nullptr) throw PythonError();
  return handle;
}

void* current_stream(const Array& array) {
  void* stream = nullptr;
  const attune_device device = array.tensor().device;
  const dlpack::ExchangeApi* const exchange = array.producer().exchange;
  if (is_gpu(device.type) && exchange != nullptr &&
      exchange->current_stream(ATTUNE_CUDA, device.index, &stream) != 0) {
    throw PythonError();
  }
  return stream;
}

namespace {

void set_error(void*, const char*, const char* message) {
  PyErr_SetString(PyExc_MemoryError, message);
}

/// Memory of ours with its description: what is made for libraries with immutable arrays. JAX takes
/// the description from before DLPack 1.0 alone.
struct OwnMemory {
  dlpack::ManagedTensor managed;
  std::vector<std::int64_t> shape, strides;
  void* data = nullptr;
};

dlpack::ManagedTensor* own_memory(const attune_tensor& prototype) {
  auto memory = std::make_unique<OwnMemory>();
  memory->shape.assign(prototype.shape, prototype.shape + prototype.ndim);
  memory->strides.resize(memory->shape.size());
  std::int64_t elements = 1;
  for (std::size_t i = memory->shape.size(); i-- > 0;) {
    memory->strides[i] = elements;
    elements *= memory->shape[i];
  }
  const std::size_t bytes = static_cast<std::size_t>(elements) * (prototype.dtype.bits / 8U);
  constexpr std::size_t kAlignment = 64;  // JAX shares memory with this, and copies otherwise
  memory->data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (memory->data == nullptr) throw std::bad_alloc();
  memory->managed = {.tensor = prototype,
                     .manager_context = memory.get(),
                     .deleter = [](dlpack::ManagedTensor* self) {
                       auto* const owner = static_cast<OwnMemory*>(self->manager_context);
                       std::free(owner->data);
                       delete owner;
                     }};
  memory->managed.tensor.data = memory->data;
  memory->managed.tensor.shape = memory->shape.data();
  memory->managed.tensor.strides = memory->strides.data();
  return &memory.release()->managed;
}

void release_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;  // taken over
  auto* const managed =
      static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

/// empty(shape, dtype=...) of the array's own namespace, with the type of `typed_like`, else f32.
Ref empty(const Producer& producer, PyObject* like, PyObject* typed_like,
          const std::vector<std::int64_t>& shape) {
  static PyObject* const dtype_name = PyUnicode_InternFromString("dtype");
  if (producer.empty == nullptr) {
    Ref library;
    if (PyObject* const found = PyObject_CallMethod(like, "__array_namespace__", nullptr)) {
      library = Ref::owned(found);
    } else {  // CuPy, and NumPy before 2.0: the package that the type is in
      PyErr_Clear();
      const Ref module = Ref::owned(PyObject_GetAttrString(producer.type, "__module__"));
      const char* const path = PyUnicode_AsUTF8AndSize(module.get(), nullptr);
      if (path == nullptr) throw PythonError();
      const std::string package(path, std::strcspn(path, "."));
      library = Ref::owned(PyImport_ImportModule(package.c_str()));
    }
    producer.float32 = Ref::owned(PyObject_GetAttrString(library.get(), "float32")).release();
    producer.empty = Ref::owned(PyObject_GetAttrString(library.get(), "empty")).release();
  }
  Ref dtype;
  if (typed_like != nullptr) dtype = Ref::owned(PyObject_GetAttr(typed_like, dtype_name));
  const Ref sizes = Ref::owned(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const size = Ref::owned(PyLong_FromLongLong(shape[i])).release();
    PyTuple_SetItem(sizes.get(), static_cast<Py_ssize_t>(i), size);
  }
  const Ref arguments = Ref::owned(PyTuple_Pack(1, sizes.get()));
  const Ref keywords = Ref::owned(PyDict_New());
  if (PyDict_SetItem(keywords.get(), dtype_name, dtype ? dtype.get() : producer.float32) < 0) {
    throw PythonError();
  }
  return Ref::owned(PyObject_Call(producer.empty, arguments.get(), keywords.get()));
}

}  // namespace

void NewArray::make(const Array& like, PyObject* like_object, PyObject* typed_like,
                    attune_dtype dtype, std::vector<std::int64_t> shape) {
  attune_tensor prototype = {};
  prototype.device = like.tensor().device;
  prototype.ndim = static_cast<std::int32_t>(shape.size());
  prototype.dtype = dtype;
  prototype.shape = shape.data();
  producer_ = &like.producer();
  if (producer_->exchange != nullptr) {
    if (producer_->exchange->allocate(&prototype, &managed_, nullptr, set_error) != 0) {
      throw PythonError();
    }
    tensor_ = &managed_->tensor;
  } else if (producer_->immutable) {
    if (is_gpu(prototype.device.type)) {
      raise(PyExc_ValueError,
            "attune_kernels: results of this library can only be made on the CPU here; on a GPU "
            "give arrays of a library that can be written to");
    }
    own_ = own_memory(prototype);
    tensor_ = &own_->tensor;
    Py_INCREF(like_object);
    like_ = Ref::owned(like_object);
  } else {
    object_ = empty(*producer_, like_object, typed_like, shape);
    view_.borrow("attune_kernels", "a new array", object_.get(), nullptr);
    tensor_ = &view_.tensor();
  }
  made_ = true;
}

Ref NewArray::finish() {
  if (!made_) return none();
  if (object_) return std::move(object_);
  if (producer_->exchange != nullptr) {
    void* object = nullptr;
    if (producer_->exchange->managed_to_object(std::exchange(managed_, nullptr), &object) != 0) {
      throw PythonError();
    }
    return Ref::owned(static_cast<PyObject*>(object));
  }
  const Ref capsule = Ref::owned(PyCapsule_New(own_, "dltensor", release_capsule));
  own_ = nullptr;
  const Ref helpers = Ref::owned(PyImport_ImportModule("attune_kernels._arrays"));
  return Ref::owned(
      PyObject_CallMethod(helpers.get(), "from_capsule", "OO", like_.get(), capsule.get()));
}

NewArray::~NewArray() {
  if (managed_ != nullptr) managed_->deleter(managed_);
  if (own_ != nullptr) own_->deleter(own_);
}

}  // namespace attune_python
