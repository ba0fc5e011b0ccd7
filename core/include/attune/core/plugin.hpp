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

namespace attune {

#define ATTUNE_STRINGIZE_(x) #x
#define ATTUNE_STRINGIZE(x) ATTUNE_STRINGIZE_(x)
/// The number of attune's interface to plugins, and the C++ ABI: a plugin and the library that
/// loads it must agree in it. The number is raised with every change of a class that both see, and
/// only then, so that a plugin outlives the releases that change none.
inline constexpr const char* kPluginAbi =
    "attune plugin interface 4 gxx-abi " ATTUNE_STRINGIZE(__GXX_ABI_VERSION) " cxx11-abi "
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0
    "0";
#else
    "1";
#endif
#undef ATTUNE_STRINGIZE
#undef ATTUNE_STRINGIZE_

/// Loads a plugin and lets it register into `registry`. The object stays loaded as long as the
/// process, as what it registered is its code.
///
/// Throws Unavailable, with the plugin's path and the reason, when the path is not there or is no
/// regular file (a FIFO, a device or a folder is not opened), when it is no shared object or not
/// all of one, or lacks one of the two functions; when attune_plugin_abi returns null or the text
/// of another attune; and when either function throws, whatever it throws: what the registry
/// refuses (a kernel that is registered already, or is for an op that is not) says so in the
/// reason. After that the registry may hold a part of what the plugin brings: drop it.
/// `attune --plugin` ends with status 3 then, and with 2 where ATTUNE_PLUGINS named the plugin.
///
/// A plugin runs with all that the process may do. Initialisers of its globals run before anything
/// of it can be checked, and an exception that leaves one ends the process.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace attune
