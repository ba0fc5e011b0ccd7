#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <attune_json/strict_json.hpp>

#include <attune/core/input_file.hpp>
#include <attune/io/safetensors.hpp>

#include "safetensors_format.hpp"

namespace attune::io {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little);  // as the format

/// Throws InvalidArgument in the name of one file.
class Complaint {
 public:
  explicit Complaint(const std::string& path) : path_(path) {}

  template <class... Parts>
  [[noreturn]] void operator()(const Parts&... parts) const {
    throw InvalidArgument(str("tensor file ", path_, ": ", parts...));
  }

 private:
  const std::string& path_;
};

/// The header as JSON. Two values under one name, or nesting deeper than the format's, are refused.
json parse_header(const std::string& text, const Complaint& fail) {
  constexpr std::size_t kMaxDepth = 3;  // header, tensor, shape
  try {
    return parse_strict_json<json>(text, kMaxDepth);
  } catch (const JsonRefused& refused) {
    switch (refused.why) {
      case JsonRefused::Why::kNotJson:
        fail("the header is not JSON: ", refused.what());
      case JsonRefused::Why::kNameTwice:
        fail("the header names ", json(refused.name).dump(), " twice");
      case JsonRefused::Why::kTooDeep:
        fail("the header is nested too deeply");
    }
    throw;
  }
}

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  Extents shape;
  std::uint64_t begin = 0;  // from the end of the header
  std::uint64_t end = 0;
};

/// One tensor's part of the header.
class EntryParser {
 public:
  EntryParser(const std::string& name, const json& value, const Complaint& fail)
      : name_(json(name).dump()), value_(value), fail_(fail) {}

  Entry parse(const std::string& name) const {
    if (!value_.is_object()) fail_("tensor ", name_, ": expected an object");
    Entry entry;
    entry.name = name;
    entry.dtype = dtype();
    entry.shape = shape();
    const std::vector<std::uint64_t> offsets = integers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail_("tensor ", name_, ": data_offsets: expected [begin, end]");
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    check_bytes(entry);
    return entry;
  }

 private:
  const json& member(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail_("tensor ", name_, ": no ", key);
    return *found;
  }

  DType dtype() const {
    const json& given = member("dtype");
    std::string known;
    for (const auto& [name, dtype] : kDTypeNames) {
      if (given.is_string() && given.get_ref<const std::string&>() == name) return dtype;
      known += str(known.empty() ? "" : ", ", name);
    }
    fail_("tensor ", name_, ": dtype ", given.dump(), ": expected one of ", known);
  }

  std::vector<std::uint64_t> integers(const char* key) const {
    const json& given = member(key);
    const auto is_integer = [](const json& item) { return item.is_number_unsigned(); };
    if (!given.is_array() || !std::all_of(given.begin(), given.end(), is_integer)) {
      fail_("tensor ", name_, ": ", key, ": expected an array of non-negative integers");
    }
    return given.get<std::vector<std::uint64_t>>();
  }

  Extents shape() const {
    const std::vector<std::uint64_t> given = integers("shape");
    if (given.size() > Extents::kMaxRank) {
      fail_("tensor ", name_, ": rank ", given.size(), ", expected at most ", Extents::kMaxRank);
    }
    std::vector<std::int64_t> extents;
    for (const std::uint64_t extent : given) {
      if (extent > std::numeric_limits<std::int64_t>::max()) {
        fail_("tensor ", name_, ": shape: ", extent, " exceeds 2^63 - 1");
      }
      extents.push_back(static_cast<std::int64_t>(extent));
    }
    return Extents(std::span<const std::int64_t>(extents));
  }

  void check_bytes(const Entry& entry) const {
    std::uint64_t bytes = 0;
    try {
      const auto count = static_cast<std::uint64_t>(element_count(entry.shape));
      if (__builtin_mul_overflow(count, size_of(entry.dtype), &bytes)) {
        fail_("tensor ", name_, ": too large");
      }
    } catch (const InvalidArgument& error) {
      fail_("tensor ", name_, ": ", error.what());
    }
    if (entry.end - entry.begin == bytes) return;
    fail_("tensor ", name_, ": shape ", entry.shape, " of ", entry.dtype, " takes ", bytes,
          " bytes, but data_offsets hold ", entry.end - entry.begin);
  }

  std::string name_;  // quoted and escaped
  const json& value_;
  const Complaint& fail_;
};

/// The format wants the data to be covered exactly: nothing twice, nothing left over.
void check_layout(std::vector<Entry>& entries, std::uint64_t data_bytes, const Complaint& fail) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    const std::string name = json(entry.name).dump();
    if (entry.end > data_bytes) {
      fail("tensor ", name, ": its data ends at byte ", entry.end, " of ", data_bytes);
    }
    if (entry.begin < covered) fail("tensor ", name, ": its data overlaps another tensor's");
    if (entry.begin > covered) fail("tensor ", name, ": there is a gap before its data");
    covered = entry.end;
  }
  if (covered != data_bytes) {
    fail("there are ", data_bytes - covered, " bytes after the last tensor");
  }
}

Attributes parse_metadata(const json& value, const Complaint& fail) {
  if (!value.is_object()) fail(kMetadataKey, ": expected an object");
  Attributes attributes;
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) fail(kMetadataKey, ": ", json(name).dump(), ": expected a string");
    attributes.emplace(name, text.get<std::string>());
  }
  return attributes;
}

/// The header's text, and where the data begins.
struct Header {
  std::string text;
  std::uint64_t data = 0;
};

Header read_header(const InputFile& input, const Complaint& fail) {
  std::uint64_t header_bytes = 0;
  if (input.size() < sizeof header_bytes) fail("is too short: ", input.size(), " bytes");
  input.read_at(0, &header_bytes, sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail("its header is said to have ", header_bytes, " bytes, expected at most ", kMaxHeaderBytes);
  }
  if (header_bytes > input.size() - sizeof header_bytes) {
    fail("is too short: ", input.size(), " bytes, with a header of ", header_bytes);
  }
  Header header{std::string(header_bytes, '\0'), sizeof header_bytes + header_bytes};
  input.read_at(sizeof header_bytes, header.text.data(), header_bytes);
  return header;
}

TensorFile read(const InputFile& input, const Complaint& fail) {
  const auto [text, data] = read_header(input, fail);
  const json header = parse_header(text, fail);
  if (!header.is_object()) fail("the header is not a JSON object");

  TensorFile file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      file.attributes = parse_metadata(value, fail);
    } else {
      entries.push_back(EntryParser(name, value, fail).parse(name));
    }
  }
  check_layout(entries, input.size() - data, fail);
  for (const Entry& entry : entries) {
    Tensor tensor(entry.dtype, entry.shape);
    input.read_at(data + entry.begin, tensor.view().data, tensor.bytes());
    file.tensors.emplace(entry.name, std::move(tensor));
  }
  return file;
}

}  // namespace

TensorFile read_safetensors(const std::string& path) {
  const Complaint fail(path);
  try {
    return read(InputFile(path), fail);
  } catch (const FileError& error) {
    throw InvalidArgument(str("tensor file ", error.what()));
  }
}

}  // namespace attune::io
