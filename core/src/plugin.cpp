#include <dlfcn.h>

#include <string_view>

#include <attune/core/error.hpp>
#include <attune/core/plugin.hpp>

namespace attune {
namespace {

template <class Function>
Function symbol(void* object, const char* name, const std::string& path) {
  void* found = dlsym(object, name);
  if (found == nullptr) throw Unavailable(str("plugin '", path, "' has no function ", name));
  return reinterpret_cast<Function>(found);
}

}  // namespace

void load_plugin(const std::string& path, Registry& registry) {
  // A bare name would be searched for in the library path; a plugin is always a file that was
  // named.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) throw Unavailable(str("plugin '", path, "': ", dlerror()));
  const std::string_view abi = symbol<const char* (*)()>(object, "attune_plugin_abi", path)();
  if (abi != kPluginAbi) {
    throw Unavailable(
        str("plugin '", path, "' was built for '", abi, "', this is '", kPluginAbi, "'"));
  }
  symbol<void (*)(Registry&)>(object, "attune_register", path)(registry);
}

}  // namespace attune
