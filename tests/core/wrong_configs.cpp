// Configs that are declared wrongly, one each time this is compiled: WRONG says which. The compiler
// is to say what is wrong with it in words (CMakeLists.txt has them).
#include <attune/core/kernel.hpp>

namespace {

using attune::constraint;
using attune::launch_axis;

struct Other {
  int width = 1;
};
enum class Nameless { kOne };

struct Config {
#if WRONG == 1
  Config() = default;
  explicit Config(int w) : width(w) {}
#endif
  using Op = void;
  int width = 1;
  int height = 1;
  Nameless nameless = Nameless::kOne;
#if WRONG != 2
  friend constexpr bool operator==(const Config&, const Config&) = default;
#endif

  static constexpr auto axes() {
#if WRONG == 3
    return std::tuple{launch_axis("width", &Other::width, {1, 2})};
#elif WRONG == 4
    return std::tuple{launch_axis("width", &Config::width, {})};
#elif WRONG == 5
    return std::tuple{launch_axis("width", &Config::width, {2, 4})};
#elif WRONG == 6
    return std::tuple{launch_axis("width", &Config::width, {1, 2}),
                      launch_axis("width", &Config::height, {1, 2})};
#elif WRONG == 7
    return std::tuple{launch_axis("nameless", &Config::nameless, {Nameless::kOne})};
#else
    return std::tuple{launch_axis("width", &Config::width, {1, 2})};
#endif
  }
#if WRONG == 8
  static constexpr auto constraints() {
    return std::tuple{constraint(
        "height < 3", [](int h) { return h < 3; }, &Config::height)};
  }
#endif
};

}  // namespace

int main() { return static_cast<int>(attune::to_params(Config{}).size()); }
