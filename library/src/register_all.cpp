#include <attune/attune.hpp>
#include <attune/backends/all.hpp>
#include <attune/ops/register.hpp>

namespace attune {

void register_all(Registry& registry) {
  ops::register_ops(registry);
  register_backends(registry);
}

}  // namespace attune
