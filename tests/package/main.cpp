#include <iostream>

#include <attune/attune.hpp>

int main() { std::cout << attune::kVersion << '\n'; }
