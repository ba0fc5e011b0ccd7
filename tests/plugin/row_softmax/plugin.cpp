#include <attune/core/plugin.hpp>

#include "row_softmax.hpp"

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  row_softmax::register_row_softmax(registry);
}
