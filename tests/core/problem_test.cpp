#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <attune/core/problem.hpp>

namespace attune {
namespace {

constexpr std::array<std::string_view, 2> kKinds{"plain", "fancy"};
constexpr std::array<std::string_view, 3> kParts{"head", "body", "tail"};

enum class Kind : std::int32_t { kPlain, kFancy };

struct ToyProblem {
  std::int64_t rows = 1;
  std::int64_t cols = 0;
  Kind kind = Kind::kPlain;
  std::int32_t parts = 0;
  bool wide = false;
};

struct Toy {
  static constexpr std::string_view kName = "toy";
  using Problem = ToyProblem;
  static constexpr auto fields() {
    return std::tuple{field("rows", &Problem::rows, Bucket::kPow2), field("cols", &Problem::cols),
                      choice("kind", &Problem::kind, kKinds),
                      bits("parts", &Problem::parts, kParts), flag("wide", &Problem::wide)};
  }
  static Params expand(Params params) {
    if (const std::string* found = find_param(params, "side")) {
      const std::string side = *found;  // push_back moves the params
      params.push_back({"rows", side});
      params.push_back({"cols", side});
      std::erase_if(params, [](const Param& p) { return p.name == "side"; });
    }
    return params;
  }
  static void complete(Problem& problem) {
    if (problem.cols == 0) throw InvalidArgument("toy: cols: expected at least 1");
  }
};

struct Other : Toy {
  static constexpr std::string_view kName = "other";
};

TEST(ProblemText, NamesEveryField) {
  const ToyProblem problem{.rows = 1000, .cols = 7, .kind = Kind::kFancy, .parts = 5, .wide = true};
  EXPECT_EQ(problem_text<Toy>(problem), "rows=1000 cols=7 kind=fancy parts=head+tail wide=yes");
  EXPECT_EQ(problem_text<Toy>(problem, true),
            "rows=1024 cols=7 kind=fancy parts=head+tail wide=yes");
}

RC_GTEST_PROP(ProblemText, ParsesToTheSameProblem, ()) {
  const ToyProblem problem{.rows = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40),
                           .cols = *rc::gen::inRange<std::int64_t>(1, 5000),
                           .kind = *rc::gen::element(Kind::kPlain, Kind::kFancy),
                           .parts = *rc::gen::inRange(0, 8),
                           .wide = *rc::gen::arbitrary<bool>()};
  const std::string text = problem_text<Toy>(problem);
  RC_ASSERT(field_values<Toy>(parse_problem<Toy>(parse_params(text, ' '))) ==
            field_values<Toy>(problem));
}

RC_GTEST_PROP(Bucket, RoundsUpToTheSamePowerOfTwoAndIsMonotone, ()) {
  const auto a = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 50);
  const auto b = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 50);
  const std::int64_t bucket = bucketed(a, Bucket::kPow2);
  RC_ASSERT(bucket >= a);
  RC_ASSERT(bucket <= 2 * a || a == 0);
  RC_ASSERT(bucketed(bucket, Bucket::kPow2) == bucket);
  RC_ASSERT((a <= b) <= (bucket <= bucketed(b, Bucket::kPow2)));
  RC_ASSERT(bucketed(a, Bucket::kExact) == a);
}

TEST(ParseProblem, ExpandsShorthandsBeforeIt) {
  const ToyProblem problem = parse_problem<Toy>(parse_params("side=12"));
  EXPECT_EQ(problem.rows, 12);
  EXPECT_EQ(problem.cols, 12);
}

TEST(ParseProblem, RefusesWithTheFieldAndWhatItTakes) {
  const auto message = [](const char* text) {
    try {
      (void)parse_problem<Toy>(parse_params(text, ' '));
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message("cols=x"), "cols=x: expected an integer >= 0");
  EXPECT_EQ(message("cols=-1"), "cols=-1: expected an integer >= 0");
  EXPECT_EQ(message("cols=99999999999999999999"),
            "cols=99999999999999999999: expected an integer >= 0");
  EXPECT_EQ(message("cols=1 kind=odd"), "kind=odd: expected plain, fancy");
  EXPECT_EQ(message("cols=1 parts=head+leg"),
            "parts=head+leg: expected head, body, tail (joined by '+'), or none");
  EXPECT_EQ(message("cols=1 row=3"), "toy: no field 'row'; did you mean 'rows'?");
  EXPECT_EQ(message("rows=3"), "toy: cols: expected at least 1");
}

/// The toy op after its second release.
struct GrownProblem : ToyProblem {
  std::int64_t blocks = 0;
  std::int32_t extras = 0;
  Kind state = Kind::kPlain;
  bool padded = false;
};

struct Grown {
  static constexpr std::string_view kName = "toy";
  using Problem = GrownProblem;
  static constexpr auto fields() {
    return std::tuple{
        flag("padded", &Problem::padded).optional(),
        field("rows", &Problem::rows, Bucket::kPow2),
        field("blocks", &Problem::blocks, Bucket::kPow2).optional("blocked"),
        field("cols", &Problem::cols),
        choice("kind", &Problem::kind, kKinds),
        choice("state", &Problem::state, kKinds).optional(),
        bits("parts", &Problem::parts, kParts).feature(),
        flag("wide", &Problem::wide),
        bits("extras", &Problem::extras, kParts).optional(),
    };
  }
};

RC_GTEST_PROP(OptionalFields, At0LeaveTextAndBucketAsTheyWere, ()) {
  ToyProblem before;
  before.rows = *rc::gen::inRange<std::int64_t>(0, 5000);
  before.cols = *rc::gen::inRange<std::int64_t>(1, 5000);
  before.parts = *rc::gen::inRange(0, 8);
  before.wide = *rc::gen::arbitrary<bool>();
  const GrownProblem now{before};
  RC_ASSERT(problem_text<Grown>(now) == problem_text<Toy>(before));
  RC_ASSERT(problem_text<Grown>(now, true) == problem_text<Toy>(before, true));
  const Params old_text = parse_params(problem_text<Toy>(before), ' ');
  RC_ASSERT(field_values<Grown>(parse_problem<Grown>(old_text)) == field_values<Grown>(now));
}

RC_GTEST_PROP(OptionalFields, ParseToTheSameProblem, ()) {
  GrownProblem problem;
  problem.blocks = *rc::gen::inRange<std::int64_t>(0, 4);
  problem.extras = *rc::gen::inRange(0, 8);
  problem.state = *rc::gen::element(Kind::kPlain, Kind::kFancy);
  problem.padded = *rc::gen::arbitrary<bool>();
  const Params text = parse_params(problem_text<Grown>(problem), ' ');
  RC_ASSERT(field_values<Grown>(parse_problem<Grown>(text)) == field_values<Grown>(problem));
}

TEST(OptionalFields, StandInTheirPlaceWhereTheyAreNot0) {
  GrownProblem problem;
  problem.blocks = 3;
  problem.padded = true;
  EXPECT_EQ(problem_text<Grown>(problem),
            "padded=yes rows=1 blocks=3 cols=0 kind=plain parts=none wide=no");
  EXPECT_EQ(problem_text<Grown>(problem, true),
            "padded=yes rows=1 blocks=4 cols=0 kind=plain parts=none wide=no");
}

TEST(OptionalFields, MustBe0ByDefault) {
  struct Wrong {
    struct Problem {
      std::int64_t blocks = 1;
    };
    static constexpr auto fields() {
      return std::tuple{field("blocks", &Problem::blocks).optional()};
    }
  };
  static_assert(!detail::optional_fields_default_to_0<Wrong>());
  static_assert(detail::optional_fields_default_to_0<Grown>());
}

TEST(NeededFeatures, AreThoseOfFieldsThatAreNot0) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  GrownProblem problem;
  problem.wide = true;
  problem.kind = Kind::kFancy;
  EXPECT_THAT(needed_features<Grown>(problem), IsEmpty()) << "these are no features";
  problem.padded = true;
  problem.blocks = 2;
  problem.state = Kind::kFancy;
  problem.parts = 5;
  problem.extras = 2;
  EXPECT_THAT(needed_features<Grown>(problem),
              ElementsAre("padded", "blocked", "state=fancy", "head", "tail", "body"));
  const AnyProblem any = AnyProblem::of<Grown>(problem);
  const ProblemRef ref = any;
  EXPECT_EQ(ref.needed(ref.problem), needed_features<Grown>(problem));
}

TEST(AnyProblem, KeepsTheValueAndKnowsItsOp) {
  const AnyProblem any = AnyProblem::of<Toy>({.rows = 3, .cols = 4});
  EXPECT_EQ(ProblemRef(any).as<Toy>().cols, 4);
  EXPECT_THROW(ProblemRef(any).as<Other>(), std::logic_error);
}

TEST(Labels, OfAValueThatHasNoneIsItsNumber) {
  const FieldInfo kind{"kind", Bucket::kExact, Labels::kValues, kKinds};
  EXPECT_EQ(detail::label_text(kind, 0), "plain");
  EXPECT_EQ(detail::label_text(kind, 1), "fancy");
  EXPECT_EQ(detail::label_text(kind, 2), "2");
  EXPECT_EQ(detail::label_text(kind, -1), "-1");
  const FieldInfo number{"rows", Bucket::kPow2, Labels::kNone, {}};
  EXPECT_EQ(detail::label_text(number, 0), "0");
}

TEST(Labels, OfBitsAreJoinedAndNoneIsNone) {
  const FieldInfo parts{"parts", Bucket::kExact, Labels::kBits, kParts};
  EXPECT_EQ(detail::label_text(parts, 0), "none");
  EXPECT_EQ(detail::label_text(parts, 6), "body+tail");
  EXPECT_EQ(detail::parse_label(parts, "none"), 0);
  EXPECT_EQ(detail::parse_label(parts, "tail+head"), 5);
  for (const char* text : {"", "head+", "+head", "head++tail", "none+head"}) {
    EXPECT_THROW(detail::parse_label(parts, text), InvalidArgument) << text;
  }
}

TEST(Labels, OfANumberIsOneThatIsNotNegative) {
  const FieldInfo number{"rows", Bucket::kPow2, Labels::kNone, {}};
  EXPECT_EQ(detail::parse_label(number, "0"), 0);
  EXPECT_EQ(detail::parse_label(number, "12"), 12);
  EXPECT_THROW(detail::parse_label(number, "-1"), InvalidArgument);
  EXPECT_THROW(detail::parse_label(number, "12x"), InvalidArgument);
}

}  // namespace
}  // namespace attune
