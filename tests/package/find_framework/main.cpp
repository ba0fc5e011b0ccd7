#include <iostream>

#include <attune/framework.hpp>

int main() {
  const auto context = attune::make_framework_context({.database = ""});
  const attune::Registry& registry = context->registry();
  std::cout << "attune " << attune::kVersion << ", " << registry.ops().size() << " ops\n";
  return registry.ops().empty() && registry.devices().size() == 1 ? 0 : 1;
}
