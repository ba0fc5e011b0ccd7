// Problems: what is computed, as fields declared once. Keys, text, parsing and comparison follow.
//
//   struct RowSoftmaxProblem {
//     std::int64_t rows = 0, cols = 0;
//     bool causal = false;  // since the second release
//   };
//   static constexpr auto fields() {
//     return std::tuple{field("rows", &Problem::rows, Bucket::kPow2),
//                       field("cols", &Problem::cols),
//                       flag("causal", &Problem::causal).optional()};
//   }
//
// A problem is a trivially copyable aggregate of integers, bools and enums. Its fields are
// everything that may change which config is best; values that do not (scale, layer index,
// pointers) belong to the arguments.
//
// Keys are durable. The text of a problem ("rows=1000 cols=64") is the key of its rows in
// databases. Fields of an op's first release stand in it always. A field that is added later must
// be `.optional()`: where it is 0 (no, none, the first label) the text leaves it out, and a text
// without it is read as 0. So rows stored before there was such a field are the rows of the
// problems without it, and keep serving them. Never rename or remove a field, nor a label.
//
// Kernels are refused by inclusion. What a problem needs beyond the plain case are features, named
// strings; a kernel names those that it understands (Kernel::features()), and is never asked for a
// problem that needs another one. So a kernel that was written before an option existed is never
// handed it. An optional field is a feature; one of the first release is where it says
// `.feature()`:
//
//   field   needs, where it is not 0                      for example
//   number  its name, or the one given                    N=3 needs "packed"
//   flag    its name, or the one given                    causal=yes needs "causal"
//   choice  its name, or the one given, with the label    state=bf16 needs "state=bf16"
//   bits    the label of each bit that is set             gate=g+gk needs "g" and "gk"
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

/// How far apart two values of a field may be and still share a tuned config when neither was tuned
/// itself.
enum class Bucket {
  kExact,  // they may not
  kPow2,   // both round up to the same power of two
};

/// `value` itself, or the power of two at or above it.
constexpr std::int64_t bucketed(std::int64_t value, Bucket bucket) {
  if (bucket == Bucket::kExact || value <= 1 || value > (std::int64_t{1} << 62)) return value;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

/// What a field's value is called: nothing (a number), one label a value, or one label a bit joined
/// by '+'.
enum class Labels { kNone, kValues, kBits };

/// A field for people: "T" (bucketed), "dtype" (f32, f16 or bf16).
struct FieldInfo {
  std::string_view name;
  Bucket bucket = Bucket::kExact;
  Labels label_kind = Labels::kNone;
  std::span<const std::string_view> labels;
  std::string_view feature_name = {};  // what it needs where it is not 0; "" for nothing
  bool is_optional = false;            // left out of texts where it is 0
};

/// A field of a Problem. Made by field(), flag(), choice() and bits().
template <class Problem, class T>
struct Field : FieldInfo {
  T Problem::*member;

  /// This field, needing a feature where it is not 0. Bits need those of their labels.
  constexpr Field feature(std::string_view called = {}) const {
    Field named = *this;
    named.feature_name = called.empty() ? name : called;
    return named;
  }
  /// This field, added after the first release of its op: a feature, and left out of texts where
  /// it is 0. 0 must be the member's default.
  constexpr Field optional(std::string_view called = {}) const {
    Field added = feature(called);
    added.is_optional = true;
    return added;
  }
};

inline constexpr std::array<std::string_view, 2> kNoYes{"no", "yes"};

/// A number.
template <class Problem, class T>
constexpr Field<Problem, T> field(std::string_view name, T Problem::*member,
                                  Bucket bucket = Bucket::kExact) {
  return {{name, bucket, Labels::kNone, {}}, member};
}

/// A bool, written "yes" or "no".
template <class Problem>
constexpr Field<Problem, bool> flag(std::string_view name, bool Problem::*member) {
  return {{name, Bucket::kExact, Labels::kValues, kNoYes}, member};
}

/// An enum whose value i is written labels[i]. `labels` must have static storage.
template <class Problem, class T>
constexpr Field<Problem, T> choice(std::string_view name, T Problem::*member,
                                   std::span<const std::string_view> labels) {
  return {{name, Bucket::kExact, Labels::kValues, labels}, member};
}

/// A set of bits: bit i is written labels[i], several are joined by '+', none is "none".
template <class Problem, class T>
constexpr Field<Problem, T> bits(std::string_view name, T Problem::*member,
                                 std::span<const std::string_view> labels) {
  return {{name, Bucket::kExact, Labels::kBits, labels}, member};
}

inline constexpr std::size_t kMaxProblemFields = 24;
inline constexpr std::size_t kMaxProblemBytes = 256;

/// The values of a problem's fields, packed: what a launch hashes and compares. Numbers take a word
/// each, labelled fields a byte. No text, no allocation; words from `count` on are not initialised.
struct FieldValues {
  std::array<std::int64_t, kMaxProblemFields> values;
  std::uint64_t count = 0;

  friend bool operator==(const FieldValues& a, const FieldValues& b) {
    return a.count == b.count &&
           std::memcmp(a.values.data(), b.values.data(), a.count * sizeof(std::int64_t)) == 0;
  }
};

/// Op names are compared by this 64-bit FNV-1a hash on the launch path; the registry refuses two
/// ops that share one.
constexpr std::uint64_t op_id(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// The features that a problem of this op needs of a kernel.
template <class Op>
std::vector<std::string> needed_features(const typename Op::Problem& problem);

/// A problem by reference, without its type. The op is compared by name, which works across a
/// plugin's boundary.
struct ProblemRef {
  /// needed_features() of the problem's op.
  using NeededFeatures = std::vector<std::string> (*)(const void* problem);

  std::string_view op;
  const void* problem = nullptr;
  NeededFeatures needed = nullptr;

  template <class Op>
  static ProblemRef of(const typename Op::Problem& problem) {
    return {Op::kName, &problem, needed_by<Op>};
  }
  template <class Op>
  static std::vector<std::string> needed_by(const void* problem) {
    return needed_features<Op>(*static_cast<const typename Op::Problem*>(problem));
  }
  /// Throws std::logic_error when this is a problem of another op: a bug of the caller's.
  template <class Op>
  const typename Op::Problem& as() const {
    if (op != Op::kName) {
      throw std::logic_error(str("problem of ", op, " given to ", Op::kName));
    }
    return *static_cast<const typename Op::Problem*>(problem);
  }
};

/// A problem by value, without its type. Its op's name must have static storage, as kName does.
class AnyProblem {
 public:
  AnyProblem() = default;
  template <class Op>
  static AnyProblem of(const typename Op::Problem& problem) {
    using Problem = typename Op::Problem;
    static_assert(std::is_trivially_copyable_v<Problem> && sizeof(Problem) <= kMaxProblemBytes);
    AnyProblem any;
    any.op_ = Op::kName;
    any.needed_ = ProblemRef::needed_by<Op>;
    std::memcpy(any.bytes_.data(), &problem, sizeof problem);
    return any;
  }
  operator ProblemRef() const {  // NOLINT(google-explicit-constructor)
    return {op_, bytes_.data(), needed_};
  }
  std::string_view op() const { return op_; }

 private:
  std::string_view op_;
  ProblemRef::NeededFeatures needed_ = nullptr;
  alignas(16) std::array<std::byte, kMaxProblemBytes> bytes_{};
};

namespace detail {

/// Made by the compiler: a look-up visits them, and what joins tuples is not seen through.
template <class Op>
inline constexpr auto kFields = Op::fields();

template <class Op, class Visit>
constexpr void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kFields<Op>);
}

std::string label_text(const FieldInfo& info, std::int64_t value);
std::int64_t parse_label(const FieldInfo& info, std::string_view text);  // throws InvalidArgument

void add_needed_features(const FieldInfo& info, std::int64_t value,
                         std::vector<std::string>& needed);

/// Whether each optional field is 0 by default: what a text without it is read as.
template <class Op>
constexpr bool optional_fields_default_to_0() {
  const typename Op::Problem plain{};
  bool sound = true;
  for_each_field<Op>([&](const auto& f) {
    if (f.is_optional && static_cast<std::int64_t>(plain.*(f.member)) != 0) sound = false;
  });
  return sound;
}

}  // namespace detail

/// The values of all fields, exact.
template <class Op>
FieldValues field_values(const typename Op::Problem& problem) {
  static_assert(std::tuple_size_v<decltype(Op::fields())> <= kMaxProblemFields);
  constexpr unsigned kByte = 8;
  constexpr unsigned kWord = 64;
  FieldValues out;
  std::uint64_t bytes = 0;
  unsigned used = 0;
  detail::for_each_field<Op>([&](const auto& f) {
    const auto value = static_cast<std::int64_t>(problem.*(f.member));
    const bool fits_a_byte = f.label_kind == Labels::kValues ||
                             (f.label_kind == Labels::kBits && f.labels.size() <= kByte);
    if (!fits_a_byte) {
      out.values[out.count++] = value;
      return;
    }
    bytes |= (static_cast<std::uint64_t>(value) & 0xffU) << used;
    used += kByte;
    if (used == kWord) {
      out.values[out.count++] = static_cast<std::int64_t>(bytes);
      bytes = used = 0;
    }
  });
  if (used != 0) out.values[out.count++] = static_cast<std::int64_t>(bytes);
  return out;
}

/// "T=1000 dtype=bf16 ...": every field but optional ones that are 0; or with bucketed fields
/// rounded ("T=1024 ...").
template <class Op>
std::string problem_text(const typename Op::Problem& problem, bool bucket = false) {
  static_assert(detail::optional_fields_default_to_0<Op>());
  std::string text;
  detail::for_each_field<Op>([&](const auto& f) {
    const auto value = static_cast<std::int64_t>(problem.*(f.member));
    if (f.is_optional && value == 0) return;
    if (!text.empty()) text += ' ';
    text += f.name;
    text += '=';
    text += detail::label_text(f, bucketed(value, bucket ? f.bucket : Bucket::kExact));
  });
  return text;
}

template <class Op>
std::vector<FieldInfo> field_infos() {
  std::vector<FieldInfo> infos;
  detail::for_each_field<Op>([&](const auto& f) { infos.push_back(f); });
  return infos;
}

template <class Op>
std::vector<std::string> needed_features(const typename Op::Problem& problem) {
  std::vector<std::string> needed;
  detail::for_each_field<Op>([&](const auto& f) {
    detail::add_needed_features(f, static_cast<std::int64_t>(problem.*(f.member)), needed);
  });
  return needed;
}

/// Reads a problem from named values; fields not named keep their defaults.
///
/// An op may add two things. `static Params expand(Params)` rewrites shorthands before parsing
/// (D=64 as K=64 V=64); `static void complete(Problem&)` then fills what follows from the rest and
/// throws InvalidArgument when the problem is not legal. Throws InvalidArgument for an unknown name
/// or a value that is not one of the field's.
template <class Op>
typename Op::Problem parse_problem(Params params) {
  if constexpr (requires { Op::expand(params); }) params = Op::expand(std::move(params));
  typename Op::Problem problem{};
  std::vector<std::string> names;
  detail::for_each_field<Op>([&](const auto& f) {
    names.emplace_back(f.name);
    if (const std::string* given = find_param(params, f.name)) {
      using T = std::remove_reference_t<decltype(problem.*(f.member))>;
      problem.*(f.member) = static_cast<T>(detail::parse_label(f, *given));
    }
  });
  for (const Param& param : params) {
    bool known = false;
    for (const std::string& name : names) known = known || name == param.name;
    if (!known) {
      throw InvalidArgument(
          str(Op::kName, ": no field '", param.name, "'", did_you_mean(param.name, names)));
    }
  }
  if constexpr (requires { Op::complete(problem); }) Op::complete(problem);
  return problem;
}

}  // namespace attune
