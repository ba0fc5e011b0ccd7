// The arguments of a call, bound to the parameters that they have in every function of attune's.
//
// Binding costs a pointer comparison for a keyword that is written in the program's text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

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

/// In the order of Parameter.
inline constexpr std::array<std::string_view, kParameters> kParameterNames = {
    "q",
    "k",
    "v",
    "g",
    "g_gamma",
    "gk",
    "gv",
    "slopes",
    "initial_state",
    "cu_seqlens",
    "cu_seqlens_host",
    "states",
    "initial_slots",
    "final_slots",
    "snapshot_slots",
    "state",
    "slot_indices",
    "kept_slots",
    "accepted",
    "committed_k",
    "committed_v",
    "committed_g",
    "committed_gk",
    "committed_gv",
    "committed_accepted",
    "o",
    "final_state",
    "d_o",
    "dfinal_state",
    "layer_idx",
    "num_layers",
    "snapshot_every",
    "state_seed",
    "scale",
    "reverse",
    "want_final_state",
    "allow_tf32",
    "platform",
    "config",
    "stream",
};

const char* name_of(Parameter parameter);

/// The parameters of a function of Python's, as the first line of its manual has them:
/// "f(q, k, *, g=None)".
struct Function {
  std::array<char, 40> name = {};  // with its zero
  std::array<Parameter, kParameters> listed = {};
  std::size_t count = 0;
  std::size_t required = 0;    // the first of them: those without a default
  std::size_t positional = 0;  // how many may be given by position

  std::span<const Parameter> parameters() const { return {listed.data(), count}; }
};

/// Does not compile for a name that is no parameter's.
consteval Function function_of(std::string_view manual) {
  Function made;
  const std::size_t open = manual.find('(');
  for (std::size_t i = 0; i < open; ++i) made.name.at(i) = manual[i];
  std::string_view rest = manual.substr(open + 1, manual.find(')') - open - 1);
  bool by_keyword = false;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(", "), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 2, rest.size()));
    if (item == "*") {
      by_keyword = true;
      continue;
    }
    const std::size_t equals = item.find('=');
    std::size_t parameter = 0;
    while (kParameterNames.at(parameter) != item.substr(0, equals)) ++parameter;
    made.listed.at(made.count++) = Parameter{parameter};
    if (equals == std::string_view::npos) made.required = made.count;
    if (!by_keyword) made.positional = made.count;
  }
  return made;
}

class Arguments {
 public:
  /// Throws TypeError for a parameter that is missing, unknown or given twice.
  Arguments(const Function& function, PyObject* const* values, Py_ssize_t count,
            PyObject* keyword_names);

  const char* function() const { return function_.name.data(); }
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
  /// What was writable has been written to.
  void wrote(Parameter parameter) const;

  // TypeErrors name the parameter.
  bool flag(Parameter parameter) const;
  std::optional<double> number(Parameter parameter) const;
  std::optional<long long> integer(Parameter parameter) const;
  /// Throws ValueError unless it is 0 to 2^64 - 1.
  std::optional<std::uint64_t> seed(Parameter parameter) const;
  const char* text(Parameter parameter) const;  // null when not given
  /// The stream to queue on: the one given, else q's library's current one.
  void* stream() const { return stream_; }

 private:
  /// Throws the Python error that is set; a TypeError says that `what` is expected of `parameter`.
  [[noreturn]] void fail(Parameter parameter, const char* what) const;

  const Function& function_;
  std::array<PyObject*, kParameters> values_ = {};  // borrowed; null for None
  std::array<Array, kArrays> arrays_;
  void* stream_ = nullptr;
};

}  // namespace attune_python
