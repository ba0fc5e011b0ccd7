// The contents of a tensor file as an op's inputs: names and attributes, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/case.hpp>

#include "case_tensors.hpp"
#include "constant_decay.hpp"

namespace attune::ops {

/// Tensors whose names start with this are what a file expects, not inputs.
inline constexpr std::string_view kExpectPrefix = "expect.";

class FileInputs {
 public:
  /// Throws InvalidArgument for a tensor that is not among `known`, naming it.
  FileInputs(std::string_view op, const TensorMap& tensors, const Attributes& attributes,
             std::span<const std::string_view> known, CaseTensors& to);

  /// A copy of the file's tensor on the case's device. Throws InvalidArgument when it is not there.
  const ConstTensorView* required(std::string_view name);
  /// The same, or null when it is not there.
  const ConstTensorView* optional(std::string_view name);
  /// The file's tensor itself, in host memory.
  const Tensor* host(std::string_view name) const;

  /// Attributes; nothing when they are not there. Throw InvalidArgument for a text that does not
  /// fit.
  std::optional<double> number(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name) const;
  bool flag(std::string_view name) const;

  /// slopes, g_gamma, or the attributes layer_idx and num_layers.
  DecayInputs decay(bool required);

  /// Warns of attributes that nobody has asked for: a misspelt one would be ignored. "op" says what
  /// the file is for, and "format" is what other writers of such files put there.
  void warn_of_unread_attributes() const;

 private:
  const std::string* attribute(std::string_view name) const;

  std::string_view op_;
  const TensorMap& tensors_;
  const Attributes& attributes_;
  CaseTensors& to_;
  mutable std::vector<std::string> asked_{"op", "format"};  // attributes
};

/// A dense copy of a host tensor.
Tensor copy_of(const Tensor& tensor);

}  // namespace attune::ops
