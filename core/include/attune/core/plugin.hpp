// Plugins: shared objects that bring ops, kernels or devices.
//
// A plugin is built against an installed attune and defines two functions:
//
//   extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
//   extern "C" void attune_register(attune::Registry& registry) { registry.add(...); }
//
// It is loaded by `attune --plugin libmine.so`, ContextOptions::plugins, or ATTUNE_PLUGINS. attune
// compares kPluginAbi as the plugin was compiled with its own before it calls anything else.
#pragma once

#include <string>

#include <attune/core/registry.hpp>
#include <attune/core/version.hpp>

namespace attune {

#define ATTUNE_STRINGIZE_(x) #x
#define ATTUNE_STRINGIZE(x) ATTUNE_STRINGIZE_(x)
/// Library version and C++ ABI: a plugin and the library that loads it must agree in it.
inline constexpr const char* kPluginAbi =
    "attune " ATTUNE_VERSION " gxx-abi " ATTUNE_STRINGIZE(__GXX_ABI_VERSION) " cxx11-abi "
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0
    "0";
#else
    "1";
#endif
#undef ATTUNE_STRINGIZE
#undef ATTUNE_STRINGIZE_

/// Loads a plugin and lets it register into `registry`. The object stays loaded as long as the
/// process. Throws Unavailable when it cannot be loaded, lacks an entry, or was built against
/// another attune.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace attune
