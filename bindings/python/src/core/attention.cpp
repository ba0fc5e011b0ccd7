#include <string>
#include <utility>

#include "arguments.hpp"
#include "manuals.hpp"
#include "methods.hpp"
#include "status.hpp"

namespace attune_python {
namespace {

using P = Parameter;

constexpr attune_dtype kFloat32 = {ATTUNE_FLOAT, 32, 1};

/// Passes a call's options on. Borrows from the arguments.
attune_call call_of(const Arguments& arguments) {
  attune_call call = {};
  call.struct_size = sizeof call;
  call.flags = arguments.flag(P::kAllowTf32) ? ATTUNE_ALLOW_TF32 : 0U;
  call.stream = arguments.stream();
  call.platform = arguments.text(P::kPlatform);
  call.config = arguments.text(P::kConfig);
  return call;
}

/// attune_attention_args or attune_decode_args: what they have in common.
template <class Args>
Args args_of(const Arguments& arguments, const std::optional<double>& scale) {
  Args args = {};
  args.struct_size = sizeof args;
  args.q = arguments.array(P::kQ).get();
  args.k = arguments.array(P::kK).get();
  args.v = arguments.array(P::kV).get();
  args.g = arguments.array(P::kG).get();
  args.g_gamma = arguments.array(P::kGGamma).get();
  args.gk = arguments.array(P::kGk).get();
  args.gv = arguments.array(P::kGv).get();
  args.slopes = arguments.array(P::kSlopes).get();
  args.layer_idx = arguments.integer(P::kLayerIdx).value_or(0);
  args.num_layers = arguments.integer(P::kNumLayers).value_or(0);
  args.scale = scale ? &*scale : nullptr;
  if (const auto seed = arguments.seed(P::kStateSeed)) {
    args.flags |= ATTUNE_STOCHASTIC_STATES;
    args.state_seed = *seed;
  }
  return args;
}

attune_attention_args attention_args_of(const Arguments& arguments,
                                        const std::optional<double>& scale) {
  auto args = args_of<attune_attention_args>(arguments, scale);
  args.flags |= arguments.flag(P::kReverse) ? ATTUNE_REVERSE : 0U;
  args.initial_state = arguments.array(P::kInitialState).get();
  args.cu_seqlens = arguments.array(P::kCuSeqlens).get();
  args.cu_seqlens_host = arguments.array(P::kCuSeqlensHost).get();
  args.states = arguments.writable(P::kStates).get();
  args.initial_slots = arguments.array(P::kInitialSlots).get();
  args.final_slots = arguments.array(P::kFinalSlots).get();
  args.snapshot_slots = arguments.array(P::kSnapshotSlots).get();
  args.snapshot_every = arguments.integer(P::kSnapshotEvery).value_or(0);
  return args;
}

/// Results can only be made for q, k and v of the ranks that calls have, 4 or, a token a row, `least`;
/// attune checks the rest. The words are those of attune's own messages.
void check_ranks(const Arguments& arguments, int least = 4) {
  const int rank = arguments.array(P::kQ).tensor().ndim;
  const std::string function = arguments.function();
  if (rank < least || rank > 4) {
    raise(PyExc_ValueError, function + ": q has " + std::to_string(rank) +
                                " dimensions, expected " + (least == 4 ? "4" : "3 or 4"));
  }
  for (const P parameter : {P::kK, P::kV}) {
    const int other = arguments.array(parameter).tensor().ndim;
    if (other != rank) {
      raise(PyExc_ValueError, function + ": " + name_of(parameter) + " has " +
                                  std::to_string(other) + " dimensions, q has " +
                                  std::to_string(rank));
    }
  }
}

void check_lightning(const Arguments& arguments) {
  const std::string function = arguments.function();
  if (arguments.given(P::kLayerIdx) != arguments.given(P::kNumLayers)) {
    raise(PyExc_ValueError, function + ": layer_idx and num_layers go together");
  }
  const int sources = (arguments.given(P::kLayerIdx) ? 1 : 0) +
                      (arguments.given(P::kSlopes) ? 1 : 0) + (arguments.given(P::kGGamma) ? 1 : 0);
  if (sources != 1) {
    raise(PyExc_ValueError,
          function +
              ": exactly one of layer_idx with num_layers, slopes and g_gamma is expected, " +
              std::to_string(sources) + " are given");
  }
  if (arguments.given(P::kNumLayers) && *arguments.integer(P::kNumLayers) < 1) {
    raise(PyExc_ValueError, function + ": num_layers is " +
                                std::to_string(*arguments.integer(P::kNumLayers)) +
                                ", at least 1 is expected");
  }
}

std::vector<std::int64_t> shape_of(const Array& array) {
  return {array.tensor().shape, array.tensor().shape + array.tensor().ndim};
}

/// q's shape with v's last dimension.
std::vector<std::int64_t> output_shape(const Arguments& arguments) {
  std::vector<std::int64_t> shape = shape_of(arguments.array(P::kQ));
  shape.back() = shape_of(arguments.array(P::kV)).back();
  return shape;
}

/// [N,H,K,V]
std::vector<std::int64_t> state_shape(const Arguments& arguments) {
  const std::vector<std::int64_t> q = shape_of(arguments.array(P::kQ));
  std::int64_t sequences = q.front();
  if (const Array& bounds = arguments.array(P::kCuSeqlens); bounds.given()) {
    if (bounds.tensor().ndim != 1 || bounds.tensor().shape[0] < 1) {
      raise(PyExc_ValueError, std::string(arguments.function()) +
                                  ": cu_seqlens is expected to have one dimension, [N+1]");
    }
    sequences = bounds.tensor().shape[0] - 1;
  }
  return {sequences, q[q.size() - 2], q.back(), shape_of(arguments.array(P::kV)).back()};
}

/// A result: the caller's array when one is given, else a new one.
class Result {
 public:
  void take(const Arguments& arguments, P parameter) {
    arguments_ = &arguments;
    given_ = parameter;
    tensor_ = arguments.writable(parameter).get();
  }
  /// Of q's library and device, with the type of the array `typed_like`, or f32.
  void make(const Arguments& arguments, std::optional<P> typed_like,
            std::vector<std::int64_t> shape) {
    made_.make(arguments.array(P::kQ), arguments.value(P::kQ),
               typed_like ? arguments.value(*typed_like) : nullptr,
               typed_like ? arguments.array(*typed_like).tensor().dtype : kFloat32,
               std::move(shape));
    tensor_ = made_.get();
  }
  const attune_tensor* get() const { return tensor_; }
  Ref finish() {
    if (arguments_ == nullptr) return made_.finish();
    arguments_->wrote(given_);
    PyObject* const object = arguments_->value(given_);
    Py_INCREF(object);
    return Ref::owned(object);
  }

 private:
  const Arguments* arguments_ = nullptr;  // of an array that is given
  P given_ = {};
  NewArray made_;
  const attune_tensor* tensor_ = nullptr;
};

Ref attend(const Arguments& arguments) {
  check_ranks(arguments);
  const std::optional<double> scale = arguments.number(P::kScale);
  attune_attention_args args = attention_args_of(arguments, scale);
  const attune_call call = call_of(arguments);
  Result o, final_state;
  if (arguments.given(P::kO)) {
    o.take(arguments, P::kO);
  } else {
    o.make(arguments, P::kQ, output_shape(arguments));
  }
  if (arguments.given(P::kFinalState)) {
    final_state.take(arguments, P::kFinalState);
  } else if (arguments.flag(P::kWantFinalState)) {
    final_state.make(
        arguments,
        arguments.given(P::kInitialState) ? std::optional(P::kInitialState) : std::nullopt,
        state_shape(arguments));
  }
  args.o = o.get();
  args.final_state = final_state.get();
  attune_status status = ATTUNE_OK;
  {
    const WithoutGil others_run;
    status = attune_attention(&args, &call);
  }
  check(status);
  arguments.wrote(P::kStates);
  const Ref first = o.finish();
  const Ref second = final_state.finish();
  return Ref::owned(PyTuple_Pack(2, first.get(), second.get()));
}

/// A dict of "dq", "dk", "dv" and the gradient of each gate and state that was given.
Ref attend_backward(const Arguments& arguments) {
  check_ranks(arguments);
  const std::optional<double> scale = arguments.number(P::kScale);
  const attune_attention_args args = attention_args_of(arguments, scale);
  const attune_call call = call_of(arguments);
  attune_attention_grads grads = {};
  grads.struct_size = sizeof grads;
  grads.d_o = arguments.array(P::kDO).get();
  grads.dfinal_state = arguments.array(P::kDFinalState).get();

  struct Gradient {
    P of;
    const char* name;
    const attune_tensor** written;
    Result array = {};
  };
  Gradient gradients[] = {
      {P::kQ, "dq", &grads.dq},
      {P::kK, "dk", &grads.dk},
      {P::kV, "dv", &grads.dv},
      {P::kG, "dg", &grads.dg},
      {P::kGGamma, "dg_gamma", &grads.dg_gamma},
      {P::kGk, "dgk", &grads.dgk},
      {P::kGv, "dgv", &grads.dgv},
      {P::kSlopes, "dslopes", &grads.dslopes},
      {P::kInitialState, "dinitial_state", &grads.dinitial_state},
  };
  for (Gradient& gradient : gradients) {
    const Array& of = arguments.array(gradient.of);
    if (!of.given()) continue;
    const bool is_input = gradient.of <= P::kV;
    gradient.array.make(arguments, is_input ? std::optional(P::kQ) : std::nullopt, shape_of(of));
    *gradient.written = gradient.array.get();
  }
  attune_status status = ATTUNE_OK;
  {
    const WithoutGil others_run;
    status = attune_attention_backward(&args, &grads, &call);
  }
  check(status);
  Ref result = Ref::owned(PyDict_New());
  for (Gradient& gradient : gradients) {
    if (gradient.array.get() == nullptr) continue;
    const Ref array = gradient.array.finish();
    if (PyDict_SetItemString(result.get(), gradient.name, array.get()) < 0) throw PythonError();
  }
  return result;
}

Ref decode(const Arguments& arguments) {
  check_ranks(arguments, 3);
  const std::optional<double> scale = arguments.number(P::kScale);
  auto args = args_of<attune_decode_args>(arguments, scale);
  const attune_call call = call_of(arguments);
  args.state = arguments.writable(P::kState).get();
  args.slot_indices = arguments.array(P::kSlotIndices).get();
  args.kept_slots = arguments.array(P::kKeptSlots).get();
  args.accepted = arguments.array(P::kAccepted).get();
  args.committed_k = arguments.array(P::kCommittedK).get();
  args.committed_v = arguments.array(P::kCommittedV).get();
  args.committed_g = arguments.array(P::kCommittedG).get();
  args.committed_gk = arguments.array(P::kCommittedGk).get();
  args.committed_gv = arguments.array(P::kCommittedGv).get();
  args.committed_accepted = arguments.array(P::kCommittedAccepted).get();
  Result o;
  if (arguments.given(P::kO)) {
    o.take(arguments, P::kO);
  } else {
    o.make(arguments, P::kQ, output_shape(arguments));
  }
  args.o = o.get();
  attune_status status = ATTUNE_OK;
  {
    const WithoutGil others_run;
    status = attune_decode(&args, &call);
  }
  check(status);
  arguments.wrote(P::kState);
  return o.finish();
}

// --- what Python sees
// -----------------------------------------------------------------------------

/// The function that a manual is of, bound and run.
template <const char* const& kManual, Ref (*kRun)(const Arguments&), bool kIsLightning = false>
PyObject* method(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* keyword_names) {
  static constexpr Function kFunction = function_of(kManual);
  return guarded([&] {
    const Arguments arguments(kFunction, values, count, keyword_names);
    if constexpr (kIsLightning) check_lightning(arguments);
    use_default_policy();
    return kRun(arguments);
  });
}

using Method = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <const char* const& kManual, Ref (*kRun)(const Arguments&), bool kIsLightning = false>
PyMethodDef entry() {
  static constexpr Function kFunction = function_of(kManual);
  const Method run = method<kManual, kRun, kIsLightning>;
  return {kFunction.name.data(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)),
          METH_FASTCALL | METH_KEYWORDS, kManual};
}

}  // namespace

PyMethodDef attention_methods[] = {
    entry<kRecurrentManual, attend>(),
    entry<kGlaManual, attend>(),
    entry<kLightningManual, attend, true>(),
    entry<kRecurrentBackwardManual, attend_backward>(),
    entry<kGlaBackwardManual, attend_backward>(),
    entry<kLightningBackwardManual, attend_backward, true>(),
    entry<kRecurrentDecodeManual, decode>(),
    entry<kLightningDecodeManual, decode, true>(),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace attune_python
