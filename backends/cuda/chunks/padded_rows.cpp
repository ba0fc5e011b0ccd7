#include "cuda/chunks/padded_rows.hpp"

#include <algorithm>
#include <initializer_list>

namespace attune::cuda {
namespace {

/// Whether its rows are of whole pieces that start at multiples of 16 bytes.
template <class Tensor>
bool has_pieces(const Tensor& tensor) {
  constexpr std::int64_t kBytes = 16;
  bool whole = tensor.size(3) % kRowPiece == 0 &&
               reinterpret_cast<std::uintptr_t>(tensor.data) % kBytes == 0;
  for (int dim = 0; dim < 3; ++dim) {
    const std::int64_t bytes =
        tensor.stride(dim) * static_cast<std::int64_t>(size_of(tensor.dtype));
    whole = whole && (tensor.size(dim) == 1 || bytes % kBytes == 0);
  }
  return whole;
}

/// Whether its elements lie one behind the other, from a multiple of 16 bytes on.
template <class Tensor>
bool is_dense(const Tensor& tensor) {
  constexpr std::int64_t kBytes = 16;
  bool dense = reinterpret_cast<std::uintptr_t>(tensor.data) % kBytes == 0;
  std::int64_t elements = tensor.size(3);
  for (int dim = 2; dim >= 0; --dim) {
    dense = dense && (tensor.size(dim) == 1 || tensor.stride(dim) == elements);
    elements *= tensor.size(dim);
  }
  return dense;
}

/// Places the copy of a tensor and makes `tensor` a view of it.
template <class Tensor>
PaddedRows replace(Tensor& tensor, WorkspaceParts& parts) {
  const std::int64_t padded = padded_channels(tensor.size(3));
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t rows = tensor.size(0) * tensor.size(1) * tensor.size(2);
  PaddedRows made{.rows = static_cast<std::byte*>(const_cast<void*>(tensor.data)),
                  .sizes = {tensor.size(0), tensor.size(1), tensor.size(2)},
                  .strides = {tensor.stride(0), tensor.stride(1), tensor.stride(2)},
                  .copy = parts.take<std::byte>(rows * padded * width),
                  .channels = static_cast<int>(tensor.size(3)),
                  .padded = static_cast<int>(padded),
                  .width = static_cast<int>(width)};
  made.has_pieces = has_pieces(tensor);
  made.is_dense = is_dense(tensor);
  const std::int64_t of_token = tensor.size(2) * padded;
  tensor = Tensor(made.copy, tensor.dtype, tensor.shape,
                  Extents{tensor.size(1) * of_token, of_token, padded, 1}, tensor.device);
  return made;
}

// ---- which tensors: f(tensor, its sizes, the gate that it is), in one order

using Problem = ops::RecurrentAttentionProblem;
using ForwardArgs = ops::RecurrentAttentionArgs;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

struct Sizes {
  std::int64_t Problem::*heads;
  std::int64_t Problem::*channels;
};
constexpr Sizes kOfQueries{&Problem::H, &Problem::K};
constexpr Sizes kOfKeys{&Problem::Hkv, &Problem::K};
constexpr Sizes kOfValues{&Problem::Hkv, &Problem::V};
constexpr Sizes kOfOutputs{&Problem::H, &Problem::V};
constexpr int kNoGate = 0;

template <class F>
void for_each_input(ForwardArgs& args, F&& f) {
  f(args.q, kOfQueries, kNoGate);
  f(args.k, kOfKeys, kNoGate);
  f(args.v, kOfValues, kNoGate);
  f(args.gk, kOfQueries, ops::kGateGk);
  f(args.gv, kOfOutputs, ops::kGateGv);
}
template <class F>
void for_each_input(BackwardArgs& args, F&& f) {
  f(args.q, kOfQueries, kNoGate);
  f(args.k, kOfKeys, kNoGate);
  f(args.v, kOfValues, kNoGate);
  f(args.d_o, kOfOutputs, kNoGate);
}

template <class F>
void for_each_output(ForwardArgs& args, F&& f) {
  f(args.o, kOfOutputs, kNoGate);
}
template <class F>
void for_each_output(BackwardArgs& args, F&& f) {
  f(args.dq, kOfQueries, kNoGate);
  f(args.dk, kOfKeys, kNoGate);
  f(args.dv, kOfValues, kNoGate);
}

/// Adds up the bytes of the copies that a problem needs.
auto counting(const Problem& problem, WorkspaceParts& parts) {
  return [&](const auto&, const Sizes& sizes, int gate) {
    if (gate != kNoGate && (problem.gates & gate) == 0) return;
    const std::size_t width = gate != kNoGate ? sizeof(float) : size_of(problem.dtype);
    parts.take(problem.B * problem.T * problem.*sizes.heads *
               padded_channels(problem.*sizes.channels) * static_cast<std::int64_t>(width));
  };
}

/// Whether a tensor map's descriptor can say where its rows lie.
bool has_map(const ConstTensorView& tensor) {
  for (int dim = 0; dim < 3; ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) <= 0) return false;
  }
  return true;
}
bool have_maps(std::initializer_list<ConstTensorView> tensors) {
  return std::ranges::all_of(tensors, has_map);
}

/// Places the copies of tensors that are given and need one, and makes the tensors views of them.
auto replacing(PaddedTensors& tensors, WorkspaceParts& parts) {
  const auto add = [&tensors, &parts](auto& tensor) {
    if (has_pieces(tensor) && has_map(tensor)) return;
    tensors.of[static_cast<std::size_t>(tensors.count++)] = replace(tensor, parts);
  };
  return [add]<class Tensor>(Tensor& tensor, const Sizes&, int) {
    if constexpr (requires { tensor.has_value(); }) {
      if (tensor) add(*tensor);
    } else {
      add(tensor);
    }
  };
}

}  // namespace

bool has_tensor_maps(const ForwardArgs& args) {
  return have_maps({args.q, args.k, args.v, args.o});
}
bool has_tensor_maps(const BackwardArgs& args) {
  return have_maps({args.q, args.k, args.v, *args.d_o, args.dq, args.dk, args.dv});
}

template <class Args>
std::size_t PaddedOutput::bytes(const Problem& problem) {
  Args none;
  WorkspaceParts parts(nullptr);
  for_each_output(none, counting(problem, parts));
  return parts.used();
}

template <class Args>
PaddedOutput::PaddedOutput(Args& args, std::byte* workspace) {
  WorkspaceParts parts(workspace);
  for_each_output(args, replacing(tensors_, parts));
}

void PaddedOutput::copy(cudaStream_t stream) const { put_rows_back(tensors_, stream); }

void AddedOutputs::redirect(TensorView& out) {
  const int dims = out.rank();
  const int first = std::max(3 - dims, 0);  // of four dimensions: fewer have rows of one element
  const auto is_one_sum = [&](int dim) { return out.stride(dim) == 0 && out.size(dim) > 1; };
  Extents sizes{1, 1, 1, 1}, strides{0, 0, 0, 1}, own = out.strides;
  for (int dim = 0; dim < dims; ++dim) {
    sizes[first + dim] = is_one_sum(dim) ? 1 : out.size(dim);
    strides[first + dim] = out.stride(dim);
  }
  TensorView rows(out.data, out.dtype, sizes, strides, out.device);
  tensors_.of[static_cast<std::size_t>(tensors_.count++)] = replace(rows, parts_);
  for (int dim = 0; dim < dims; ++dim) {
    if (!is_one_sum(dim)) own[dim] = rows.stride(first + dim);
  }
  out = TensorView(rows.data, out.dtype, out.shape, own, out.device);
}

void AddedOutputs::add(DType dtype, cudaStream_t stream) const {
  if (tensors_.count > 0) add_rows(tensors_, dtype, stream);
}

template <class Args>
std::size_t PaddedInputs::bytes(const Problem& problem) {
  Args none;
  WorkspaceParts parts(nullptr);
  for_each_input(none, counting(problem, parts));
  return parts.used();
}

template <class Args>
PaddedInputs::PaddedInputs(Args& args, std::byte* workspace) {
  WorkspaceParts parts(workspace);
  for_each_input(args, replacing(tensors_, parts));
}

void PaddedInputs::copy(cudaStream_t stream) const { copy_rows(tensors_, stream); }

template std::size_t PaddedOutput::bytes<ForwardArgs>(const Problem&);
template std::size_t PaddedOutput::bytes<BackwardArgs>(const Problem&);
template PaddedOutput::PaddedOutput(ForwardArgs&, std::byte*);
template PaddedOutput::PaddedOutput(BackwardArgs&, std::byte*);
template std::size_t PaddedInputs::bytes<ForwardArgs>(const Problem&);
template std::size_t PaddedInputs::bytes<BackwardArgs>(const Problem&);
template PaddedInputs::PaddedInputs(ForwardArgs&, std::byte*);
template PaddedInputs::PaddedInputs(BackwardArgs&, std::byte*);

}  // namespace attune::cuda
