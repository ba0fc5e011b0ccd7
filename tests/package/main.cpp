#include <attune/attune.hpp>

#include <cstdio>

int main() {
  attune::Registry registry;
  attune::register_all(registry);
  const auto kernels = registry.kernels("recurrent_attention").size();
  std::printf("attune %s, %zu kernels of recurrent_attention\n", attune::kVersion, kernels);
  return kernels >= 2 ? 0 : 1;
}
