// Built for another attune: must be refused before it registers anything.
#include <cstdlib>

namespace attune {
class Registry;
}

extern "C" const char* attune_plugin_abi() { return "attune 0.0.0 gxx-abi 1 cxx11-abi 1"; }
extern "C" void attune_register(attune::Registry&) { std::abort(); }
