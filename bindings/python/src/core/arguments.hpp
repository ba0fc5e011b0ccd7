// The arguments of a call, bound to the parameters that they have in every function of attune's.
//
// A function is a list of parameters: those that may be given by position come first. Binding costs
// a pointer comparison for a keyword that is written in the program's text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "array.hpp"
#include "python.hpp"

namespace attune_python {

enum class Parameter : std::size_t {
  kQ,
  kK,
  kV,
  kG,
  kGGamma,
  kGk,
  kGv,
  kSlopes,
  kInitialState,
  kCuSeqlens,
  kCuSeqlensHost,
  kStates,
  kInitialSlots,
  kFinalSlots,
  kSnapshotSlots,
  kState,
  kSlotIndices,
  kKeptSlots,
  kAccepted,
  kCommittedK,
  kCommittedV,
  kCommittedG,
  kCommittedGk,
  kCommittedGv,
  kCommittedAccepted,
  kO,
  kFinalState,
  kDO,
  kDFinalState,  // the last array
  kLayerIdx,
  kNumLayers,
  kSnapshotEvery,
  kStateSeed,
  kScale,
  kReverse,
  kWantFinalState,
  kAllowTf32,
  kPlatform,
  kConfig,
  kStream,
  kCount,
};
constexpr std::size_t kArrays = static_cast<std::size_t>(Parameter::kDFinalState) + 1;
constexpr std::size_t kParameters = static_cast<std::size_t>(Parameter::kCount);

const char* name_of(Parameter parameter);

struct Function {
  const char* name;
  std::span<const Parameter> parameters;
  std::size_t required;    // the first of them
  std::size_t positional;  // how many may be given by position
};

class Arguments {
 public:
  /// Throws TypeError for a parameter that is missing, unknown or given twice.
  Arguments(const Function& function, PyObject* const* values, Py_ssize_t count,
            PyObject* keyword_names);

  const char* function() const { return function_.name; }
  bool given(Parameter parameter) const { return value(parameter) != nullptr; }
  PyObject* value(Parameter parameter) const {
    return values_[static_cast<std::size_t>(parameter)];
  }

  /// The array that was given, or one that says it was not.
  const Array& array(Parameter parameter) const {
    return arrays_[static_cast<std::size_t>(parameter)];
  }
  /// The same for memory that will be written to; throws ValueError for what is read-only.
  const Array& writable(Parameter parameter) const;

  bool flag(Parameter parameter) const;
  std::optional<double> number(Parameter parameter) const;
  std::optional<long long> integer(Parameter parameter) const;
  /// Throws ValueError unless it is 0 to 2^64 - 1.
  std::optional<std::uint64_t> seed(Parameter parameter) const;
  const char* text(Parameter parameter) const;  // null when not given
  /// The stream to queue on: the one given, else q's library's current one.
  void* stream() const { return stream_; }

 private:
  const Function& function_;
  std::array<PyObject*, kParameters> values_ = {};  // borrowed; null for None
  std::array<Array, kArrays> arrays_;
  void* stream_ = nullptr;
};

}  // namespace attune_python
