#include <algorithm>
#include <map>

#include <attune/cache/decisions_digest.hpp>
#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/version.hpp>
#include <attune/distributed/agreement.hpp>
#include <attune/framework.hpp>

#include "identity.hpp"

namespace attune::distributed {
namespace {

constexpr std::size_t kDigestBytes = 32;

std::string policy_text(const AutotunePolicy& policy) {
  // What decides between rows and heuristics; budgets only say how long a search takes.
  return str(static_cast<int>(policy.cache_miss_fallback), policy.use_databases,
             policy.allow_heuristics, policy.allow_stale);
}

}  // namespace

std::string identity_text(Context& context, const Device& device) {
  const ConfigSelectorChain& chain = chain_of(context);
  const DeviceInfo& info = device.info();
  std::string text = str(ATTUNE_VERSION, '\n', info.device_class, '\n', info.driver, '\n',
                         policy_text(chain.policy()), '\n');
  std::vector<std::string> kernels;
  for (const OpInfo* op : context.registry().ops()) {
    for (const RegisteredKernel* kernel : context.registry().kernels(op->name)) {
      kernels.push_back(str(kernel->kernel->name(), ' ', kernel->kernel->version(), '\n'));
    }
  }
  std::sort(kernels.begin(), kernels.end());
  for (const std::string& kernel : kernels) text += kernel;
  return text;
}

DatabaseContent rows_for(DatabaseContent content, const std::string& device_class) {
  const auto is_other = [&](const auto& row) { return row.device_class != device_class; };
  std::erase_if(content.decisions, [&](const auto& d) { return is_other(d.row.key); });
  std::erase_if(content.pins, [&](const PinRow& pin) { return is_other(pin.key); });
  std::erase_if(content.quarantine, is_other);
  return content;
}

Agreement compare(std::vector<std::string> digests) {
  std::map<std::string_view, int> count;
  for (const std::string& digest : digests) ++count[digest];
  // Of digests that as many ranks have, that of the first rank: every rank comes to the same.
  const std::string* usual = &digests.at(0);
  for (const std::string& digest : digests) {
    if (count[digest] > count[*usual]) usual = &digest;
  }
  Agreement agreement;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] != *usual) agreement.differing.push_back(static_cast<int>(rank));
  }
  agreement.digests = std::move(digests);
  return agreement;
}

std::string Agreement::text() const {
  if (equal()) return str("all ", count_text(digests.size(), "rank"), " choose alike");
  std::string ranks;
  for (const int rank : differing) ranks += str(ranks.empty() ? "" : ", ", rank);
  return str(differing.size() == 1 ? "rank " : "ranks ", ranks, " of ", digests.size(),
             differing.size() == 1 ? " chooses" : " choose", " otherwise");
}

std::string decisions_digest(Context& context, const Device& device) {
  std::string text = identity_text(context, device);
  for (DatabaseContent& content : chain_of(context).store().contents()) {
    text += "layer\n" + text_of(rows_for(std::move(content), device.info().device_class));
  }
  return text_digest(text);
}

Agreement agree(Exchange& exchange, Context& context, const Device& device) {
  const std::string ours = decisions_digest(context, device);
  const auto ranks = static_cast<std::size_t>(exchange.size());
  std::string all(ranks * kDigestBytes, '\0');
  exchange.all_gather(ours.data(), all.data(), kDigestBytes, nullptr);
  std::vector<std::string> digests;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    digests.push_back(all.substr(rank * kDigestBytes, kDigestBytes));
  }
  return compare(std::move(digests));
}

void freeze(Context& context) { chain_of(context).freeze(); }

}  // namespace attune::distributed
