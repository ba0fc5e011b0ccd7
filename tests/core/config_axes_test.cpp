#include <set>

#include <gtest/gtest.h>

#include <attune/core/config_axes.hpp>

namespace attune {
namespace {

enum class Form { kRow, kColumn };
constexpr std::string_view to_string(Form form) { return form == Form::kRow ? "row" : "column"; }

struct TileConfig {
  using Op = void;
  int tile = 16;
  Form form = Form::kRow;
  bool prefetch = false;
  int threads = 1;
  friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{axis("tile", &TileConfig::tile, {16, 32, 64}),
                      axis("form", &TileConfig::form, {Form::kRow, Form::kColumn}),
                      launch_axis("prefetch", &TileConfig::prefetch, {false, true}),
                      launch_axis("threads", &TileConfig::threads, {1, 2, 4})};
  }
  static constexpr bool compiles(const TileConfig& c) {
    return c.tile < 64 || c.form == Form::kRow;
  }
};

/// With numbers that are no integers, an axis that means something on one form alone, and
/// constraints.
struct SolverConfig {
  struct Op {
    struct Problem {
      int rows = 0;
    };
  };
  double tolerance = 1e-8;
  float damping = 0.1F;
  Form form = Form::kRow;
  int stages = 2;
  int tile = 16;
  friend constexpr bool operator==(const SolverConfig&, const SolverConfig&) = default;

  static constexpr auto axes() {
    using C = SolverConfig;
    return std::tuple{launch_axis("tolerance", &C::tolerance, {1e-7, 1e-8, 1e-9}),
                      launch_axis("damping", &C::damping, {0.1F, 0.25F}),
                      launch_axis("form", &C::form, {Form::kRow, Form::kColumn}),
                      launch_axis("stages", &C::stages, {1, 2, 3, 4}).when(&C::form, Form::kRow),
                      launch_axis("tile", &C::tile, {8, 16, 32})};
  }
  static constexpr auto constraints() {
    using C = SolverConfig;
    return std::tuple{
        constraint(
            "stages * tile <= 64", [](int stages, int tile) { return stages * tile <= 64; },
            &C::stages, &C::tile),
        constraint(
            "tile <= rows", [](const Op::Problem& p, int tile) { return tile <= p.rows; },
            &C::tile)};
  }
};

struct NoConfig {
  using Op = void;
  friend constexpr bool operator==(const NoConfig&, const NoConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

std::string message_of(const Params& params) {
  try {
    (void)from_params<TileConfig>(params);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigAxes, SpanEveryCombinationThatCompiles) {
  EXPECT_EQ(kCompiledConfigs<TileConfig>.size(), 5U);  // 3 x 2 less (64, column)
  const std::vector<TileConfig> all = all_configs<TileConfig>();
  EXPECT_EQ(all.size(), 5U * 2 * 3);
  std::set<std::string> texts;
  for (const TileConfig& config : all) texts.insert(to_text(to_params(config)));
  EXPECT_EQ(texts.size(), all.size());
}

TEST(ConfigAxes, RoundTripThroughText) {
  for (const TileConfig& config : all_configs<TileConfig>()) {
    const std::string text = to_text(to_params(config));
    EXPECT_EQ(from_params<TileConfig>(parse_params(text)), config) << text;
  }
  EXPECT_EQ(to_text(to_params(TileConfig{})), "tile=16,form=row,prefetch=no,threads=1");
}

TEST(ConfigAxes, KeepDefaultsOfWhatIsNotNamed) {
  const TileConfig config = from_params<TileConfig>(parse_params("threads=4"));
  EXPECT_EQ(config.tile, 16);
  EXPECT_EQ(config.threads, 4);
}

TEST(ConfigAxes, RefuseAnUnknownNameAndSuggestTheNearest) {
  EXPECT_NE(message_of({{"thread", "2"}}).find("did you mean 'threads'?"), std::string::npos);
}

TEST(ConfigAxes, RefuseAValueOutsideTheAxisAndListTheLegalOnes) {
  EXPECT_EQ(message_of({{"tile", "48"}}), "config: tile=48: expected one of 16, 32, 64");
  EXPECT_EQ(message_of({{"form", "diagonal"}}),
            "config: form=diagonal: expected one of row, column");
}

TEST(ConfigAxes, RefuseACombinationThatIsNotCompiled) {
  EXPECT_NE(message_of({{"tile", "64"}, {"form", "column"}}).find("is not compiled"),
            std::string::npos);
}

TEST(ConfigAxes, DispatchReachesTheInstanceOfTheCompiledAxes) {
  for (const TileConfig& config : all_configs<TileConfig>()) {
    int tile = 0;
    Form form = Form::kRow;
    const bool found = dispatch(config, [&]<class Instance>() {
      constexpr TileConfig kConfig = Instance::kValue;
      tile = kConfig.tile;
      form = kConfig.form;
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(tile, config.tile);
    EXPECT_EQ(form, config.form);
  }
  EXPECT_FALSE(dispatch(TileConfig{.tile = 64, .form = Form::kColumn}, []<class Instance>() {}));
}

TEST(ConfigAxes, AConfigWithoutAxesHasOnePoint) {
  EXPECT_EQ(all_configs<NoConfig>().size(), 1U);
  EXPECT_TRUE(to_params(NoConfig{}).empty());
  EXPECT_EQ(from_params<NoConfig>({}), NoConfig{});
}

std::string solver_message_of(const Params& params) {
  try {
    (void)from_params<SolverConfig>(params);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigAxes, NumbersAreWrittenAsTheShortestTextThatReadsBack) {
  EXPECT_EQ(to_text(to_params(SolverConfig{})),
            "tolerance=1e-08,damping=0.1,form=row,stages=2,tile=16");
  std::set<std::string> texts;
  for (const SolverConfig& config : all_configs<SolverConfig>()) {
    const std::string text = to_text(to_params(config));
    EXPECT_EQ(from_params<SolverConfig>(parse_params(text)), config) << text;
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), all_configs<SolverConfig>().size());
}

TEST(ConfigAxes, NumbersAreReadHoweverTheyAreWritten) {
  for (const char* text : {"1e-9", "1e-09", "0.000000001"}) {
    EXPECT_EQ(from_params<SolverConfig>({{"tolerance", text}}).tolerance, 1e-9) << text;
  }
  EXPECT_EQ(solver_message_of({{"tolerance", "1e-6"}}),
            "config: tolerance=1e-6: expected one of 1e-07, 1e-08, 1e-09");
}

TEST(ConfigAxes, AnAxisIsNotMultipliedWhereItMeansNothing) {
  std::set<std::string> columns;
  for (const SolverConfig& config : all_configs<SolverConfig>()) {
    if (config.form == Form::kColumn) columns.insert(to_text(to_params(config)));
  }
  EXPECT_EQ(columns.size(), 3U * 2 * 3);  // tolerance, damping, tile
  EXPECT_EQ(columns.count("tolerance=1e-07,damping=0.25,form=column,tile=32"), 1U);
}

TEST(ConfigAxes, RefuseAValueThatMeansNothingBesideTheOthers) {
  EXPECT_EQ(solver_message_of({{"form", "column"}, {"stages", "3"}}),
            "config: stages=3 means nothing beside "
            "tolerance=1e-08,damping=0.1,form=column,tile=16");
}

TEST(ConfigAxes, RefuseWhatBreaksAConstraintAndSayWhich) {
  EXPECT_EQ(solver_message_of({{"stages", "4"}, {"tile", "32"}}),
            "config: tolerance=1e-08,damping=0.1,form=row,stages=4,tile=32 breaks "
            "stages * tile <= 64");
  EXPECT_EQ(solver_message_of({{"tile", "32"}}), "");  // too many for some problems alone
}

TEST(Params, RefuseWhatIsNotANameAndAValue) {
  for (const char* text : {"tile", "=4", "tile=", "tile=1,tile=2", "a=1,,b=2", "a=\x01"}) {
    EXPECT_THROW(parse_params(text), InvalidArgument) << text;
  }
  EXPECT_TRUE(parse_params("").empty());
  EXPECT_EQ(parse_params("B=1  T=2", ' ').size(), 2U);
}

TEST(Params, SuggestOnlyNamesThatAreNear) {
  const std::vector<std::string> known{"threads", "tile", "prefetch"};
  EXPECT_EQ(nearest_name("theads", known), "threads");
  EXPECT_EQ(nearest_name("pre", known), "prefetch");
  EXPECT_EQ(nearest_name("zzzzzz", known), "");
}

}  // namespace
}  // namespace attune
