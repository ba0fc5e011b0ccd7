#include <iostream>

#include <attune/attune.hpp>

int main() {
  attune::Registry registry;
  attune::register_all(registry);
  const auto kernels = registry.kernels("recurrent_attention").size();
  std::cout << "attune " << attune::kVersion << ", " << kernels << " kernels\n";
  return kernels >= 2 ? 0 : 1;
}
