#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <typeinfo>

#include <attune/core/error.hpp>
#include <attune/core/input_file.hpp>
#include <attune/core/params.hpp>
#include <attune/core/plugin.hpp>

namespace attune {
namespace {

constexpr const char* kAbiFunction = "attune_plugin_abi";
constexpr const char* kRegisterFunction = "attune_register";

/// Throws FileError where the loader would map what the file does not hold: it is a bus error to
/// touch that, as in a plugin that is still being copied. What else may be wrong with an object the
/// loader says itself.
void check_segments(const InputFile& file) {
  ElfW(Ehdr) header{};
  if (file.size() < sizeof(header)) return;
  file.read_at(0, &header, sizeof(header));
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
  if (header.e_ident[EI_CLASS] != kClass || header.e_phentsize != sizeof(ElfW(Phdr))) return;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    file.read_at(header.e_phoff + i * sizeof(segment), &segment, sizeof(segment));
    const bool fits =
        segment.p_offset <= file.size() && segment.p_filesz <= file.size() - segment.p_offset;
    if (segment.p_type == PT_LOAD && !fits) {
      throw FileError(str(file.path(), ": its end is missing"));
    }
  }
}

/// The object at `path`. It is never unloaded: what it registers is its code.
void* load(const std::string& path) {
  // A bare name would be searched for in the library path; a plugin is always a file that was
  // named.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  check_segments(InputFile(file));
  void* const object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) throw Unavailable(dlerror());
  return object;
}

template <class Function>
Function function(void* object, const char* name) {
  void* const found = dlsym(object, name);
  if (found == nullptr) throw Unavailable(str("it has no function ", name));
  return reinterpret_cast<Function>(found);
}

/// The number of the interface that a text like kPluginAbi begins with, or 0.
std::int64_t interface_of(std::string_view abi) {
  constexpr std::string_view kBegin = "attune plugin interface ";
  std::int64_t number = 0;
  if (!abi.starts_with(kBegin)) return 0;
  abi.remove_prefix(kBegin.size());
  return parse_integer(abi.substr(0, abi.find(' ')), number) ? number : 0;
}

void check_abi(void* object) {
  const char* const abi = function<const char* (*)()>(object, kAbiFunction)();
  if (abi == nullptr) throw Unavailable(str(kAbiFunction, " returned null"));
  const std::int64_t theirs = interface_of(abi), ours = interface_of(kPluginAbi);
  if (theirs != 0 && theirs != ours) {
    throw Unavailable(str("it was built for interface ", theirs, " of plugins, this attune has ",
                          ours, ": build it again with this attune"));
  }
  if (std::string_view(abi) != kPluginAbi) {
    throw Unavailable(str("it was built for '", abi, "', this is '", kPluginAbi, "'"));
  }
}

/// What is being handled, where it is no std::exception.
std::string name_of_current_exception() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an exception of another language";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return str("a value of type ", status == 0 ? name.get() : type->name());
}

}  // namespace

void load_plugin(const std::string& path, Registry& registry) {
  const auto error = [&](const std::string& what) {
    return Unavailable(str("plugin '", path, "': ", what));
  };
  try {
    void* const object = load(path);
    check_abi(object);
    function<void (*)(Registry&)>(object, kRegisterFunction)(registry);
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being ended, which nobody may stop
  } catch (const std::exception& what) {
    throw error(what.what());
  } catch (...) {
    throw error(str("it threw ", name_of_current_exception()));
  }
}

}  // namespace attune
