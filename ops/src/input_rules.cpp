#include "input_rules.hpp"

#include <algorithm>
#include <cmath>

namespace attune::ops {

void check_io_dtype(const CallCheck& check, std::string_view name, const ViewRef& view) {
  if (is_floating(view.dtype())) return;
  check.refuse(name, "dtype ", view.dtype(), ", expected f32, f16 or bf16");
}

void check_gate_dtype(const CallCheck& check, std::string_view name, const ViewRef& gate,
                      DType io) {
  if (gate.dtype() == DType::kF32 || gate.dtype() == io) return;
  if (io == DType::kF32) check.refuse(name, "dtype ", gate.dtype(), ", expected f32");
  check.refuse(name, "dtype ", gate.dtype(), ", expected f32 or ", io, " (q's)");
}

void check_kv_heads(const CallCheck& check, std::int64_t kv_heads, std::int64_t heads) {
  if (kv_heads >= 1 && heads % kv_heads == 0) return;
  check.refuse("k", kv_heads, " heads, expected a divisor of q's ", heads);
}

void check_scale(const CallCheck& check, const std::optional<double>& scale) {
  if (scale && !std::isfinite(*scale)) {
    check.refuse("scale", "got ", *scale, ", expected a finite number");
  }
}

double scale_or_default(const std::optional<double>& scale, std::int64_t key_channels) {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(key_channels));
}

bool fits_memory(std::initializer_list<std::int64_t> sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::int64_t bytes = 8;
  return std::none_of(sizes.begin(), sizes.end(), [&](std::int64_t size) {
    return __builtin_mul_overflow(bytes, size, &bytes);
  });
}

std::int32_t gate_bits(const ConstTensorView* g, bool constant_decay, const ConstTensorView* gk,
                       const ConstTensorView* gv) {
  return (g != nullptr ? kGateG : 0) | (constant_decay ? kGateGamma : 0) |
         (gk != nullptr ? kGateGk : 0) | (gv != nullptr ? kGateGv : 0);
}

GateDType gate_dtype_of(std::initializer_list<const ConstTensorView*> gates) {
  bool any_f32 = false;
  bool any_io = false;
  for (const ConstTensorView* gate : gates) {
    if (gate == nullptr) continue;
    (gate->dtype == DType::kF32 ? any_f32 : any_io) = true;
  }
  if (!any_io) return GateDType::kF32;
  return any_f32 ? GateDType::kMixed : GateDType::kIo;
}

}  // namespace attune::ops
