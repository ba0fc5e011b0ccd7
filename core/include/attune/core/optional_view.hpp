// A tensor that a caller may leave out: an option of an op.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include <attune/core/tensor.hpp>

namespace attune {

/// A std::optional<View> that is also made from what the view is made from:
///
///   {.gk = view}   {.gk = {pointer, {1, T, H, K}}}   {.gk = {pointer, DType::kBF16, shape, strides}}
template <class View>
class OptionalView : public std::optional<View> {
 public:
  using std::optional<View>::optional;
  OptionalView(
      std::optional<View> view)  // NOLINT(google-explicit-constructor): the same without it
      : std::optional<View>(std::move(view)) {}
  template <class Pointer, class... Rest>
  requires std::constructible_from<View, Pointer*, const Extents&, Rest...> OptionalView(
      Pointer* first, const Extents& extents, Rest... rest)
      : std::optional<View>(std::in_place, first, extents, std::move(rest)...) {}
  template <class Pointer, class... Rest>
  requires std::constructible_from<View, Pointer*, DType, const Extents&, Rest...> OptionalView(
      Pointer* first, DType type, const Extents& extents, Rest... rest)
      : std::optional<View>(std::in_place, first, type, extents, std::move(rest)...) {}
  template <class Pointer, class... Rest>
  requires std::constructible_from<View, Pointer*, DType, const Extents&, const Extents&, Rest...>
  OptionalView(Pointer* first, DType type, const Extents& extents, const Extents& strides,
               Rest... rest)
      : std::optional<View>(std::in_place, first, type, extents, strides, std::move(rest)...) {}
};

using OptionalTensorView = OptionalView<TensorView>;
using OptionalConstTensorView = OptionalView<ConstTensorView>;

}  // namespace attune
