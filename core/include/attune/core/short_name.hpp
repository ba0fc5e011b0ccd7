// A name of at most 15 characters, held in place.
//
// Platforms and backends are open sets of strings, and stand in the key that a launch hashes and
// compares: a ShortName is trivially copyable, has no padding and compares as 16 bytes.
#pragma once

#include <array>
#include <compare>
#include <ostream>
#include <string>
#include <string_view>

#include <attune/core/error.hpp>

namespace attune {

class ShortName {
 public:
  static constexpr std::size_t kMaxLength = 15;

  constexpr ShortName() = default;

  /// Throws InvalidArgument when `name` is longer than 15 characters.
  // NOLINTNEXTLINE(google-explicit-constructor): it is a string
  constexpr ShortName(std::string_view name) {
    if (name.size() > kMaxLength) {
      throw InvalidArgument("name '" + std::string(name) + "': expected at most 15 characters");
    }
    for (std::size_t i = 0; i < name.size(); ++i) chars_[i] = name[i];
  }
  constexpr ShortName(const char* name) : ShortName(std::string_view(name)) {}  // NOLINT
  ShortName(const std::string& name) : ShortName(std::string_view(name)) {}     // NOLINT

  constexpr std::string_view view() const {
    std::size_t size = 0;
    while (size < kMaxLength && chars_[size] != '\0') ++size;
    return {chars_.data(), size};
  }
  constexpr bool empty() const { return chars_[0] == '\0'; }

  friend constexpr bool operator==(const ShortName&, const ShortName&) = default;
  friend constexpr auto operator<=>(const ShortName&, const ShortName&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ShortName& name) {
    return out << name.view();
  }

 private:
  std::array<char, kMaxLength + 1> chars_{};
};

}  // namespace attune
