// The report: one page that is well formed, needs nothing else, and says what the databases hold.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/core/params.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Tree = boost::property_tree::ptree;
using Mode = ConfigDatabase::Mode;

/// A page as a tree; a test failure, by an exception, when it is not well formed.
class Page {
 public:
  explicit Page(const std::string& text) {
    std::istringstream stream(text);
    boost::property_tree::read_xml(stream, tree_);
  }

  /// Calls visit(name, element) for every element, parents first.
  void visit(const std::function<void(const std::string&, const Tree&)>& visit) const {
    walk(tree_, visit);
  }
  int count(const std::string& name, const std::string& kind = "") const {
    int number = 0;
    visit([&](const std::string& is, const Tree& element) {
      number += is == name && (kind.empty() || attribute(element, "class") == kind) ? 1 : 0;
    });
    return number;
  }
  static std::string attribute(const Tree& element, const std::string& name) {
    return element.get<std::string>("<xmlattr>." + name, "");
  }
  std::vector<std::string> attributes(const std::string& name) const {
    std::vector<std::string> all;
    visit([&](const std::string&, const Tree& element) {
      if (const std::string value = attribute(element, name); !value.empty()) all.push_back(value);
    });
    return all;
  }
  /// What the lines of the tables sort by: column to key.
  std::vector<std::map<std::string, std::string>> rows() const {
    std::vector<std::map<std::string, std::string>> all;
    visit([&](const std::string& name, const Tree& element) {
      if (name != "tr" || !attribute(element, "id").starts_with("row-")) return;
      auto& row = all.emplace_back();
      for (const auto& [is, cell] : element) {
        if (is == "td") row[attribute(cell, "data-of")] = attribute(cell, "data-key");
      }
    });
    return all;
  }

 private:
  static void walk(const Tree& tree,
                   const std::function<void(const std::string&, const Tree&)>& visit) {
    for (const auto& [name, child] : tree) {
      if (name == "<xmlattr>") continue;
      visit(name, child);
      walk(child, visit);
    }
  }
  Tree tree_;
};

/// Every anchor is there once, and every link of the page leads to one.
void expect_links_to_lead_somewhere(const Page& page) {
  std::set<std::string> anchors;
  for (const std::string& id : page.attributes("id"))
    EXPECT_TRUE(anchors.insert(id).second) << id << " twice";
  for (const std::string& link : page.attributes("href"))
    EXPECT_TRUE(link.starts_with('#') && anchors.contains(link.substr(1))) << link;
}

void tune(const Sandbox& here, const std::string& tokens) {
  const Outcome outcome = here.run({"tune", "recurrent_attention", "T=" + tokens, "H=2", "D=16",
                                    "--platform", "simd", "--budget", "1s"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

std::string page_of(const Sandbox& here) {
  const Outcome outcome = here.run({"report"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.out;
}

void edit(const Sandbox& here, const std::function<void(DatabaseContent&)>& change) {
  ConfigDatabase(here.database(), Mode::kReadWrite).edit(change);
}

TEST(Report, IsOneWellFormedPageThatSaysWhatTheDatabaseDoes) {
  const Sandbox here;
  tune(here, "64");
  tune(here, "100");
  const std::string text = page_of(here);
  const Page page(text);
  expect_links_to_lead_somewhere(page);
  EXPECT_EQ(page.count("svg"), 1) << "a roofline";
  EXPECT_EQ(page.count("circle"), 2) << "with a point for each";
  EXPECT_EQ(page.count("a", "bar"), 2);
  EXPECT_EQ(page.count("section", "problem"), 2);
  EXPECT_THAT(
      text, AllOf(HasSubstr("recurrent_attention"), HasSubstr("T=64 H=2 D=16"), HasSubstr("T=100 "),
                  HasSubstr("this machine"), HasSubstr("prefers-color-scheme:dark"),
                  Not(HasSubstr("http")), Not(HasSubstr(" src=")), Not(HasSubstr("<link"))));

  const std::vector<ConfigRow> stored =
      ConfigDatabase(here.database(), Mode::kReadOnly).read().rows;
  ASSERT_EQ(page.rows().size(), stored.size());
  for (const auto& row : page.rows()) {
    const bool is_stored = std::ranges::any_of(stored, [&](const ConfigRow& each) {
      return row.at("median us") == str(each.median_us) &&
             row.at("default us") == str(each.default_us) && row.at("kernel") == each.kernel &&
             row.at("speed-up") == str(each.default_us / each.median_us);
    });
    EXPECT_TRUE(is_stored) << row.at("problem") << ' ' << row.at("median us");
  }
}

TEST(Report, OneOpsBarsDoNotShortenAnothers) {
  const Sandbox here;
  tune(here, "64");
  edit(here, [](DatabaseContent& content) {
    StoredDecision& own = content.decisions.at(0);
    StoredDecision other = own;
    own.row.default_us = 40 * own.row.median_us;
    other.row.default_us = 2 * other.row.median_us;
    other.row.key.op = "somebodys_op";
    other.trials.clear();
    content.decisions.push_back(other);
  });
  const std::vector<std::string> styles = Page(page_of(here)).attributes("style");
  EXPECT_EQ(std::ranges::count(styles, "width:100%"), 2);
}

TEST(Report, GivesCommandsThatMeasureARowAgain) {
  const Sandbox here;
  tune(here, "64");
  std::vector<std::string> commands;
  Page(page_of(here)).visit([&](const std::string& name, const Tree& element) {
    if (name == "pre") commands.push_back(element.data());
  });
  ASSERT_EQ(commands.size(), 2U);
  for (const std::string& command : commands) {
    std::vector<std::string> words;
    std::istringstream stream(command);
    for (std::string word; stream >> word;) words.push_back(word);
    ASSERT_EQ(words.at(0), "attune");
    words.erase(words.begin());
    words.insert(words.end(), {"--budget", "1s", "--iters", "3"});
    const Outcome outcome = here.run(words);
    EXPECT_EQ(outcome.exit_code, 0) << command << '\n' << outcome.err;
  }
}

TEST(Report, EscapesWhatADatabaseSays) {
  const Sandbox here;
  tune(here, "64");
  const std::string nasty = "<script>x</script>&\"'";
  edit(here, [&](DatabaseContent& all) {
    StoredDecision odd = all.decisions.front();
    odd.row.key.op = odd.row.key.problem = odd.row.key.device_class = nasty;
    odd.row.kernel = odd.row.config = odd.row.default_config = odd.row.device_name = nasty;
    odd.row.toolkit = odd.row.library_version = nasty;
    for (TrialRow& trial : odd.trials) {
      trial.key = odd.row.key;
      trial.kernel = trial.config = trial.outcome = trial.reason = nasty;
    }
    all.decisions.push_back(odd);
  });
  const std::string text = page_of(here);
  const Page page(text);
  EXPECT_EQ(page.rows().size(), 2U);
  EXPECT_EQ(page.count("script"), 1) << "the page's own";
  EXPECT_THAT(text, AllOf(HasSubstr("&lt;script&gt;x&lt;/script&gt;&amp;&quot;'"),
                          Not(HasSubstr("<script>x"))));
  expect_links_to_lead_somewhere(page);
}

TEST(Report, HasThisMachineFirstAndMarksWhatIsStale) {
  constexpr int kOfNoKernel = 1000;  // a version
  const Sandbox here;
  tune(here, "64");
  tune(here, "100");
  std::string stale;  // the kernel, whichever was the fastest
  edit(here, [&](DatabaseContent& all) {
    for (StoredDecision decision : std::vector(all.decisions)) {
      decision.row.key.device_class = "abacus:beads=10";  // which sorts before "cpu:..."
      decision.row.device_name = "Abacus";
      decision.trials.clear();
      all.decisions.push_back(decision);
    }
    for (StoredDecision& decision : all.decisions) {
      if (decision.row.key.problem.find("T=64 ") == std::string::npos) continue;
      decision.row.kernel_version = kOfNoKernel;
      stale = decision.row.kernel;
    }
  });
  const std::string text = page_of(here);
  const Page page(text);
  expect_links_to_lead_somewhere(page);
  const std::size_t abacus = text.find("<h2 id=\"device2\">Abacus</h2>");
  ASSERT_NE(abacus, std::string::npos);
  EXPECT_LT(text.find("<h2 id=\"device1\">"), abacus);
  EXPECT_EQ(page.count("span", "mark here"), 2) << "in the summary and over the section";
  EXPECT_THAT(text, AllOf(HasSubstr("4 rows: 2 for this machine, 1 of them stale"),
                          HasSubstr("2 for other devices"), HasSubstr("has not checked them")));
  EXPECT_EQ(page.count("a", "bar doubtful"), 1);
  EXPECT_EQ(page.count("span", "mark bad"), 3) << "at the bar, in the table, over the candidates";
  EXPECT_THAT(text, HasSubstr(str("stale: tuned for version ", kOfNoKernel, " of ", stale)));
}

/// A database whose only row has these candidates of its kernel.
std::string page_with_trials(const std::vector<std::pair<std::string, double>>& trials) {
  const Sandbox here;
  tune(here, "64");
  edit(here, [&](DatabaseContent& all) {
    StoredDecision& decision = all.decisions.front();
    const TrialRow like = decision.trials.front();
    decision.trials.clear();
    for (const auto& [config, us] : trials) {
      TrialRow trial = like;
      trial.kernel = decision.row.kernel;
      trial.config = config;
      trial.median_us = us;
      decision.trials.push_back(trial);
    }
  });
  return page_of(here);
}

TEST(Report, MapsTwoParametersOnlyWhereTheyWereTriedTogether) {
  const std::string crossed = page_with_trials(
      {{"a=1,b=1", 10}, {"a=2,b=1", 20}, {"a=3,b=1", 30}, {"a=1,b=2", 15}, {"a=1,b=3", 25}});
  EXPECT_EQ(Page(crossed).count("table", "heat"), 0) << "each was moved alone";
  const std::string full = page_with_trials(
      {{"a=1,b=1", 10}, {"a=2,b=1", 20}, {"a=1,b=2", 15}, {"a=2,b=2", 40}, {"a=1,b=2,c=1", 12}});
  const Page page(full);
  EXPECT_EQ(page.count("table", "heat"), 1);
  for (const char* ratio : {">1.00x<", ">2.00x<", ">1.20x<", ">4.00x<"})
    EXPECT_THAT(full, HasSubstr(ratio));
  EXPECT_THAT(full, Not(HasSubstr(">1.50x<"))) << "12 us is the better of two with a=1, b=2";
}

TEST(Report, OfThousandsOfRowsIsBounded) {
  const Sandbox here;
  tune(here, "64");
  edit(here, [](DatabaseContent& all) {
    StoredDecision like = all.decisions.front();
    like.row.default_us = 1.5 * like.row.median_us;
    for (int i = 0; i < 3000; ++i) {
      StoredDecision decision = like;
      decision.row.key.problem = str("B=1 T=", 1000 + i);
      if (i % 3 == 0) decision.row.key.device_class = str("abacus:beads=", i);
      if (i % 30 != 0) decision.trials.clear();
      for (TrialRow& trial : decision.trials) trial.key = decision.row.key;
      all.decisions.push_back(decision);
    }
  });
  const std::string text = page_of(here);
  EXPECT_LT(text.size(), 4'000'000U);
  const Page page(text);
  expect_links_to_lead_somewhere(page);
  EXPECT_EQ(page.rows().size(), 500U);
  EXPECT_THAT(text, AllOf(HasSubstr("3001 tuned problems"), HasSubstr("The 500 of 2001"),
                          HasSubstr("and 951 more classes of devices")));
}

TEST(Report, GoesToAFileWhenAskedAndNamesCeilings) {
  const Sandbox here;
  tune(here, "64");
  const std::string path = here.file("report.html");
  const Outcome outcome =
      here.run({"report", "--output", path, "--peak", "200", "--bandwidth", "25"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(Page(text).count("svg"), 1);
  EXPECT_THAT(text, HasSubstr("200 GFLOP/s, 25 GB/s"));
}

TEST(Report, OfNothingIsTheAnswerNo) {
  const Outcome outcome = Sandbox().run({"report"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("nothing is tuned yet"));
}

TEST(Report, BadArgumentsAreNamed) {
  const Sandbox here;
  EXPECT_THAT(here.run({"report", "--peak", "3"}).err, HasSubstr("--bandwidth"));
  EXPECT_EQ(here.run({"report", "/absent.db"}).exit_code, 4);
  tune(here, "64");
  const Outcome outcome = here.run({"report", "--output", "/absent/report.html"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("/absent/report.html"));
}

}  // namespace
}  // namespace attune::test
