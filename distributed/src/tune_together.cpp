#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>

#include <attune/cache/database_text.hpp>
#include <attune/cache/decisions_digest.hpp>
#include <attune/core/error.hpp>
#include <attune/distributed/partition.hpp>
#include <attune/distributed/tune_together.hpp>
#include <attune/framework.hpp>

#include "identity.hpp"

namespace attune::distributed {

std::string text_of(const DatabaseContent& content) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  write_database_text(content, DatabaseFormat::kJsonl, text);
  return std::move(text).str();
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// What a rank sends: three lines, and its rows as JSONL.
struct Message {
  std::string identity;  // text_digest() of its identity_text()
  std::string failure;   // one line; "" where nothing failed
  DatabaseContent rows;
};

constexpr std::string_view kTitle = "attune ranks 1";

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

std::string text_of(const Message& message) {
  return str(kTitle, '\n', message.identity, '\n', one_line(message.failure), '\n',
             distributed::text_of(message.rows));
}

/// What cannot be read is a rank that failed, as every rank reads it.
Message read_message(const std::string& text, std::size_t rank) {
  std::istringstream in(text);
  std::string title;
  Message message;
  if (!std::getline(in, title) || title != kTitle || !std::getline(in, message.identity) ||
      !std::getline(in, message.failure)) {
    message.failure = "sent something else than rows: another version of attune?";
    return message;
  }
  try {
    message.rows = read_database_text(in, DatabaseFormat::kJsonl, str("rank ", rank));
  } catch (const CacheError& error) {
    message.failure = str("sent rows that cannot be read: ", error.what());
    message.rows = {};
  }
  return message;
}

/// The two collectives: how long each text is, and the texts, each with room for the longest.
std::vector<std::string> gather_texts(Exchange& exchange, std::string text) {
  const auto ranks = static_cast<std::size_t>(exchange.size());
  const std::uint64_t size = text.size();
  std::vector<std::uint64_t> sizes(ranks);
  exchange.all_gather(&size, sizes.data(), sizeof size, nullptr);
  const std::uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  text.resize(most, '\0');
  std::string all(ranks * most, '\0');
  exchange.all_gather(text.data(), all.data(), most, nullptr);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(all.substr(rank * most, sizes[rank]));
  }
  return texts;
}

/// One rank's share of the work.
class Part {
 public:
  Part(Context& context, const Device& device, Tuner::Settings settings, TuningTime time)
      : chain_(chain_of(context)),
        registry_(context.registry()),
        device_(device),
        settings_(std::move(settings)),
        time_(time),
        deadline_(Clock::now() + time.in_all) {
    settings_.stop = [stop = settings_.stop, this] {
      return Clock::now() >= deadline_ || (stop && stop());
    };
  }

  /// Tunes what is this rank's of the list. Nothing that a problem does is thrown.
  void tune(std::span<const WantedProblem> wanted, const Exchange& exchange) {
    std::vector<PartItem> items;
    for (const WantedProblem& each : wanted) {
      const OpInfo& op = registry_.op(each.problem.op());
      items.push_back(
          {item_text(op, each.problem, each.platform), "", tuning_cost_us(op, each.problem)});
    }
    const std::vector<int> part_of = partition(items, exchange.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (part_of[i] == exchange.rank()) tune_one(wanted[i]);
    }
  }

  std::size_t tuned() const { return tuned_; }
  std::size_t known() const { return known_; }
  const std::string& failure() const { return failure_; }
  void fail(const std::string& why) {
    if (failure_.empty()) failure_ = why;
  }

 private:
  void tune_one(const WantedProblem& wanted) {
    Request request;
    request.device = &device_;
    request.platform = wanted.platform;
    if (chain_.tuned_row(wanted.problem, request)) {
      ++known_;
      return;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    settings_.budget = std::min(time_.problem, left);
    settings_.prepare_budget = std::min(settings_.prepare_budget, left);
    if (left <= milliseconds(0)) return fail("its time was over before its last problem");
    try {
      chain_.tune(wanted.problem, request, settings_);
      ++tuned_;
    } catch (const CacheError&) {
      ++tuned_;  // the row could not be stored; this process has it all the same
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  ConfigSelectorChain& chain_;
  const Registry& registry_;
  const Device& device_;
  Tuner::Settings settings_;
  const TuningTime time_;
  const Clock::time_point deadline_;
  std::size_t tuned_ = 0;
  std::size_t known_ = 0;
  std::string failure_;
};

/// All layers as one table, by the order of rows.
DatabaseContent merged_layers(ConfigSelectorChain& chain) {
  DatabaseContent all;
  for (const DatabaseContent& layer : chain.store().contents()) all = merge(all, layer);
  return all;
}

/// What this rank has to say, whatever happens: the others wait for it.
Message make_message(Context& context, const Device& device, Part& part) {
  Message message;
  try {
    message.identity = text_digest(identity_text(context, device));
    message.rows = rows_for(merged_layers(chain_of(context)), device.info().device_class);
  } catch (const std::exception& error) {
    part.fail(error.what());
  }
  message.failure = part.failure();
  return message;
}

}  // namespace

TuneTogetherReport tune_together(Exchange& exchange, Context& context, const Device& device,
                                 std::span<const WantedProblem> wanted, TuningTime time,
                                 Tuner::Settings settings) {
  ConfigSelectorChain& chain = chain_of(context);
  if (chain.is_frozen()) throw InvalidArgument("tune_together: the context is frozen");
  Part part(context, device, std::move(settings), time);
  try {
    part.tune(wanted, exchange);
  } catch (const std::exception& error) {
    part.fail(error.what());
  }

  const std::vector<std::string> texts =
      gather_texts(exchange, text_of(make_message(context, device, part)));
  TuneTogetherReport report;
  report.tuned = part.tuned();
  report.known = part.known();
  // Rows of other classes than this rank's are of no use to it, and are kept: the table is the same
  // on every rank.
  DatabaseContent table;
  std::vector<std::string> identities;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    Message message = read_message(texts[rank], rank);
    table = merge(table, message.rows);
    identities.push_back(std::move(message.identity));
    report.failures.push_back(std::move(message.failure));
  }
  const std::string rows = distributed::text_of(table);
  chain.freeze(std::move(table));
  // Every rank has the same table, so that what differs is all else.
  for (std::string& identity : identities) identity = text_digest(identity + rows);
  report.agreement = compare(std::move(identities));

  for (const WantedProblem& each : wanted) {
    Request request;
    request.device = &device;
    request.platform = each.platform;
    const OpInfo* op = context.registry().find_op(each.problem.op());
    if (op == nullptr || !chain.tuned_row(each.problem, request)) {
      report.missing.push_back(op == nullptr ? std::string(each.problem.op())
                                             : str(op->name, ' ', op->text(each.problem, false)));
    }
  }
  return report;
}

}  // namespace attune::distributed
