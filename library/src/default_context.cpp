#include <attune/attune.hpp>
#include <attune/backends/all.hpp>
#include <attune/ops/register.hpp>

namespace attune {

void register_all(Registry& registry) {
  ops::register_ops(registry);
  register_backends(registry);
}

std::unique_ptr<Context> make_context(const ContextOptions& options) {
  ContextOptions with_ops = options;
  with_ops.register_kernels.insert(with_ops.register_kernels.begin(), register_all);
  return make_framework_context(with_ops);
}

Context& default_context() {
  // Never destroyed: calls of ops may come from destructors of other statics.
  static Context* const kept = make_context().release();
  return *kept;
}

}  // namespace attune
