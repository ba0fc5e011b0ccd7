// Checks that the call of every op needs, with messages in the caller's words:
//
//   recurrent_attention: k: shape [2, 64, 3, 128], expected [2, 64, Hkv, 128]
//
// One CallCheck lives as long as the check of one call. It runs on every launch, so nothing here
// allocates until something is wrong. Most ops never name it: operands.hpp calls it for what they
// declare.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <attune/core/error.hpp>
#include <attune/core/view_ref.hpp>

namespace attune {

/// What of the tensors is checked.
enum class CheckLevel {
  kMetadata,  // shapes, strides, types and devices: a plan may be made before there is memory
  kMemory,    // addresses, overlap and the values of indices in host memory, too
};

/// The addresses that an array reaches: from `first` up to, not including, `end`. Empty arrays
/// reach none.
struct AddressRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

/// One extent that a shape must have.
struct Dim {
  static constexpr std::int64_t kAny = -1;
  std::int64_t size = kAny;
  std::string_view name = {};  // what it is called while it may be anything

  Dim() = default;
  Dim(std::int64_t exactly) : size(exactly) {}   // NOLINT(google-explicit-constructor)
  Dim(const char* anything) : name(anything) {}  // NOLINT(google-explicit-constructor)
};
class CallCheck {
 public:
  CallCheck(std::string_view op, CheckLevel level) : op_(op), level_(level) {}

  std::string_view op() const { return op_; }
  CheckLevel level() const { return level_; }

  /// Throws InvalidArgument: "<op>: <name>: <what>".
  template <class... Parts>
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(std::string_view name,
                                                     const Parts&... what) const {
    throw InvalidArgument(str(op_, ": ", name, ": ", what...));
  }

  /// `when` follows the expected shape in the message: " with cu_seqlens".
  void shape(std::string_view name, const ViewRef& view, std::span<const Dim> expected,
             std::string_view when = {}) const;
  void shape(std::string_view name, const ViewRef& view,
             std::initializer_list<Dim> expected) const {
    shape(name, view, std::span(expected.begin(), expected.size()));
  }
  /// `whose` follows the expected type in the message: " (q's)".
  void dtype(std::string_view name, const ViewRef& view, DType expected,
             std::string_view whose = {}) const;
  /// i32 or i64.
  void index_dtype(std::string_view name, const ViewRef& view) const;
  /// The elements of the last dimension follow each other.
  void dense_rows(std::string_view name, const ViewRef& view) const;

  // Of all of these the views must outlive this object, and the first one's device is where the
  // others must be, too.
  void input(std::string_view name, const ViewRef& view);
  void host_input(std::string_view name, const ViewRef& view);
  /// As input(), and no element may be there twice or belong to a tensor checked before.
  void output(std::string_view name, const ViewRef& view);
  /// As output(), but it may be exactly the input of that name, checked before.
  void output_or_in_place(std::string_view name, const ViewRef& view, std::string_view in_place_of);
  /// As output(), but its first dimension may have stride 0: what is summed over it.
  void summed_output(std::string_view name, const ViewRef& view);

 private:
  struct Memory {
    AddressRange range;
    bool dense = false;
  };
  struct Seen {
    std::string_view name;
    ViewRef view;
    Memory memory;
  };
  // kMaxOperands, and a few that an op checks itself.
  static constexpr std::size_t kMaxTensors = 36;

  Memory memory_of(std::string_view name, const ViewRef& view) const;
  void on_device(std::string_view name, const ViewRef& view) const;
  void apart_from_others(const Seen& output, std::string_view in_place_of) const;
  void remember(std::string_view name, const ViewRef& view, const Memory& memory) {
    seen_[count_++].seen = {name, view, memory};
  }

  std::string_view op_;
  CheckLevel level_;
  union Slot {  // 2 KB that each launch would set to zero
    Slot() {}
    Seen seen;
  };
  std::array<Slot, kMaxTensors> seen_;
  std::size_t count_ = 0;
};

}  // namespace attune
