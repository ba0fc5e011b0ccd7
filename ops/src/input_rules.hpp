// What the inputs of recurrent_attention and of recurrent_decode have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <attune/ops/recurrent_attention_op.hpp>

#include "call_check.hpp"

namespace attune::ops {

/// The type that q decides: f32, f16 or bf16.
void check_io_dtype(const CallCheck& check, std::string_view name, const ViewRef& view);

/// f32 or q's.
void check_gate_dtype(const CallCheck& check, std::string_view name, const ViewRef& gate, DType io);

/// k's heads, against q's.
void check_kv_heads(const CallCheck& check, std::int64_t kv_heads, std::int64_t heads);

void check_scale(const CallCheck& check, const std::optional<double>& scale);
double scale_or_default(const std::optional<double>& scale, std::int64_t key_channels);

/// Whether so many values of 8 bytes can be addressed. Inputs may be small in memory, by strides of
/// 0, and yet make outputs that are not.
bool fits_memory(std::initializer_list<std::int64_t> sizes);

/// A problem's `gates` and `gate_dtype`; null is a gate that is not given.
std::int32_t gate_bits(const ConstTensorView* g, bool constant_decay, const ConstTensorView* gk,
                       const ConstTensorView* gv);
GateDType gate_dtype_of(std::initializer_list<const ConstTensorView*> gates);

}  // namespace attune::ops
