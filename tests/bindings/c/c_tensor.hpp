// Tensors of the tests as attune.h has them, and JSON that it gives.
#pragma once

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <attune/attune.h>
#include <attune/core/tensor.hpp>

namespace attune::test {

/// Borrows what it was made from.
class CTensor {
 public:
  CTensor(const ConstTensorView& view)  // NOLINT(google-explicit-constructor): stands for it
      : shape_(view.shape), strides_(view.strides) {
    tensor_.data = const_cast<void*>(view.data);
    tensor_.device = {ATTUNE_CPU, 0};
    tensor_.ndim = view.rank();
    tensor_.dtype = type_of(view.dtype);
    tensor_.shape = shape_.begin();
    tensor_.strides = strides_.begin();
  }
  CTensor(Tensor& tensor) : CTensor(ConstTensorView(tensor.view())) {}  // NOLINT
  CTensor(const CTensor&) = delete;                                     // it points into itself
  CTensor& operator=(const CTensor&) = delete;

  attune_tensor* operator->() { return &tensor_; }
  operator const attune_tensor*() const { return &tensor_; }  // NOLINT(google-explicit-constructor)

  static attune_dtype type_of(DType dtype) {
    switch (dtype) {
      case DType::kF32:
        return {ATTUNE_FLOAT, 32, 1};
      case DType::kF16:
        return {ATTUNE_FLOAT, 16, 1};
      case DType::kBF16:
        return {ATTUNE_BFLOAT, 16, 1};
      case DType::kI32:
        return {ATTUNE_INT, 32, 1};
      case DType::kI64:
        return {ATTUNE_INT, 64, 1};
    }
    return {};
  }

 private:
  Extents shape_;
  Extents strides_;
  attune_tensor tensor_{};
};

template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

/// Asks a function that gives JSON.
template <class Ask>
nlohmann::json json_of(Ask&& ask) {
  char* text = nullptr;
  EXPECT_EQ(ask(&text), ATTUNE_OK) << attune_last_error();
  if (text == nullptr) return {};
  const std::unique_ptr<char, decltype(&attune_free)> owner(text, attune_free);
  return nlohmann::json::parse(text);
}

using UniqueContext = std::unique_ptr<attune_context, decltype(&attune_context_destroy)>;

/// A context without databases; `policy` NULL for the default.
inline UniqueContext make_c_context(const char* policy, const char* database = "") {
  auto options = sized<attune_context_options>();
  options.policy = policy;
  options.database = database;
  attune_context* context = nullptr;
  EXPECT_EQ(attune_context_create(&options, &context), ATTUNE_OK) << attune_last_error();
  return {context, attune_context_destroy};
}

}  // namespace attune::test
