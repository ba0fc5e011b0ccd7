// Reading JSON that somebody else wrote.
//
// Stricter than nlohmann's parse(): refuses a name that an object has twice, and nesting deeper
// than the caller expects. The time is linear in the length of any text; parse() with a callback,
// which could check the same, is not: it visits all elements of a parent whenever a child ends, and
// all names of an ordered object for each new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace attune {

/// What is wrong with a text, for readers that tell it in their own words.
class JsonRefused : public std::runtime_error {
 public:
  enum class Why {
    kNotJson,    // what() says why
    kNameTwice,  // `name` stands twice in one object
    kTooDeep,    // in the value of `name`, of the outermost object; "" when that is an array
  };
  JsonRefused(Why refused_for, const std::string& what, std::string of = {})
      : std::runtime_error(what), why(refused_for), name(std::move(of)) {}

  Why why;
  std::string name;
};

/// The events of nlohmann's parser, which build the value.
template <class Json>
class StrictJsonReader {
 public:
  StrictJsonReader(Json& result, std::size_t max_depth) : result_(result), max_depth_(max_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return add(std::move(value)); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (!open_.back().names.insert(name).second) {
      throw JsonRefused(JsonRefused::Why::kNameTwice, "a name is given twice", name);
    }
    if (open_.size() == 1) outermost_ = name;
    name_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    throw JsonRefused(JsonRefused::Why::kNotJson, error.what());
  }

 private:
  struct Open {
    Json* value;
    std::set<std::string> names;  // of an object, so far
  };

  /// Puts a value that was just parsed into the innermost open object or array.
  Json& place(Json value) {
    if (open_.empty()) return result_ = std::move(value);
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& elements = parent.template get_ref<typename Json::array_t&>();
      return elements.emplace_back(std::move(value));
    }
    auto& members = parent.template get_ref<typename Json::object_t&>();
    if constexpr (requires { members.emplace_back(std::move(name_), std::move(value)); }) {
      // An ordered object; its emplace() would look through all of it.
      members.emplace_back(std::move(name_), std::move(value));
      return members.back().second;
    } else {
      return members.emplace(std::move(name_), std::move(value)).first->second;
    }
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json empty) {
    if (open_.size() == max_depth_) {
      throw JsonRefused(JsonRefused::Why::kTooDeep, "nested too deeply", outermost_);
    }
    // A parent grows only when all that was opened in it is closed, so the pointers hold.
    Json& opened = place(std::move(empty));
    open_.push_back({&opened, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json& result_;
  std::size_t max_depth_;
  std::vector<Open> open_;
  std::string name_;       // of the member whose value comes next
  std::string outermost_;  // the same, of the outermost object
};

/// The one value that `text` is, of at most `max_depth` objects and arrays in each other. Json is
/// nlohmann::json or ordered_json. Throws JsonRefused.
template <class Json>
Json parse_strict_json(std::string_view text, std::size_t max_depth) {
  Json result;
  StrictJsonReader<Json> reader(result, max_depth);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return result;
}

}  // namespace attune
