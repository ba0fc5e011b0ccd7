// What most verbs work with: a context made from the options, and problems with the device they are
// for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/framework.hpp>

#include "output/table.hpp"
#include "program/verb.hpp"

namespace attune::cli {

struct Spec;  // spec.hpp

/// A problem of an op on a device. What it points to lives as long as the context.
struct Target {
  const OpInfo* op = nullptr;  // as named: an alias stays one
  AnyProblem problem;
  const Device* device = nullptr;
  std::string text;              // the shortest SPEC that means the problem
  std::int64_t hits = 0;         // how often it was recorded; 0: it was not
  std::string platform = {};     // that its recorded calls asked for; "": the command's
  Constraints constraints = {};  // likewise; none: the command's
};

/// A problem as a command line or a list names it, whatever devices are here.
struct ListedProblem {
  const OpInfo* op = nullptr;
  AnyProblem problem;
  std::string device_class = {};  // that it was recorded on; "": it was not
  std::string platform = {};      // as in Target
  std::int64_t hits = 0;
};

class CommandContext {
 public:
  struct Settings {
    bool writes_database = false;  // may write the user's database
    /// Where neither --policy nor ATTUNE_POLICY says; nothing: attune's.
    std::optional<Policy> default_policy = {};
    std::optional<std::string> database = {};  // instead of --db
    std::optional<std::string> backend = {};   // where --backend does not say
    bool lists_threads = false;                // --threads is a list, which the verb reads
  };

  /// Throws UsageError, and CacheError when --db names a file that is there and cannot be used.
  CommandContext(const Invocation& call, const Settings& settings);

  Context& context() const { return *context_; }
  const Registry& registry() const { return context_->registry(); }
  ConfigSelectorChain& chain() const { return chain_of(*context_); }

  /// Throws UsageError with the nearest name.
  const OpInfo& op(std::string_view name) const;

  /// The device of --backend and --device; without them the first accelerator that has kernels for
  /// the op, else the host. Throws Unavailable, listing what there is.
  const Device& device_for(const OpInfo& op) const;

  /// Whether --backend and --device, where they are given, mean this device.
  bool may_use(const Device& device) const;

  /// The accelerators of `like`'s backend: "all", or those whose numbers `list` gives, joined by
  /// commas. Throws UsageError and Unavailable.
  std::vector<const Device*> accelerators_like(const Device& like, std::string_view list) const;

  /// Throws as device_for() does when the device of --backend and --device is not there.
  void check_device() const { static_cast<void>(named_device()); }

  /// The problems that OP SPEC... means, in their order, repetitions included. Throws UsageError
  /// and InvalidArgument.
  std::vector<ListedProblem> listed(std::span<const std::string> words) const;

  /// Listed problems on their devices, without repetitions, whose hits are added up. Recorded ones
  /// are for the device they were recorded on; those of devices that are not here are left out,
  /// with a note. Throws UsageError.
  std::vector<Target> targets(std::vector<ListedProblem> problems) const;
  std::vector<Target> targets(std::span<const std::string> words) const {
    check_device();
    return targets(listed(words));
  }

  /// What --objective says is minimised; null: the time.
  const Objective* objective() const { return objective_.get(); }
  /// "us", or the objective's.
  std::string_view unit() const { return objective_ == nullptr ? "us" : objective_->unit(); }
  /// The platform and constraints that a row's or a recorded call's request asked for. Nothing when
  /// it has another objective than the command. Throws InvalidArgument for a text that is none.
  bool read_request(const std::string& text, Target& target) const;

  /// The request for a call of `op` on `device`, with --platform, --config, --workspace-limit and
  /// constraints.
  Request request(const OpInfo& op, const Device& device) const;
  Request request(const Target& target) const;

  /// The kernels that take the problem: of --platform, without the reference unless that is it.
  std::vector<const RegisteredKernel*> competitors(const Target& target) const;

  std::uint64_t seed() const { return seed_; }
  const std::string& platform() const { return platform_; }
  /// The platform that a problem is tuned for: --platform, else the one it was recorded with.
  const std::string& platform_for(const std::string& recorded) const;
  /// What rows have for the request of a target or a listed problem: RowKey::platform.
  std::string row_request(const Target& target) const;
  std::string row_request(const ListedProblem& problem) const;
  /// Whether --backend says where all problems are tuned, whatever they were recorded on.
  bool names_backend() const { return backend_.has_value(); }
  /// The policy's name: --policy, ATTUNE_POLICY, the verb's, or attune's.
  const std::string& policy_name() const { return policy_name_; }
  /// The options that make another call of attune decide alike: " --platform simd --db x.db", or
  /// "".
  std::string options_text() const;

 private:
  void add_problems(const Spec& spec, std::vector<ListedProblem>& problems) const;
  void read_platform(const Invocation& call);
  void read_config(const Invocation& call);
  void read_bounds(const Invocation& call);
  void check_platform_has_a_device(const OpInfo& op) const;
  const Device* device_for(const OpInfo& op, const std::string& device_class) const;
  std::int64_t device_index() const;
  const Device& named_device() const;

  const Invocation* call_;
  std::optional<std::string> backend_;
  std::unique_ptr<Context> context_;
  std::optional<PolicyScope> budget_;
  std::string platform_;
  std::string policy_name_;
  std::optional<NamedConfig> config_;
  std::shared_ptr<const Objective> objective_;
  Constraints constraints_;
  std::size_t workspace_limit_ = kNoLimit;
  std::uint64_t seed_ = 1;
};

/// The shortest problem text that `op` still reads as this problem: fields at their defaults are
/// left out.
std::string short_text(const OpInfo& op, ProblemRef problem);

/// The key of a target's row.
RowKey row_key(const CommandContext& command, const Target& target);

/// A value in microseconds; nothing where the key has another objective than time.
Cell microseconds(const RowKey& key, double value);

/// "simd.recurrent_attention.forward tile_v=64,threads=2".
std::string choice_text(const Choice& choice);

/// A stored config for people: "default" for a kernel without parameters.
inline std::string config_or_default(const std::string& config) {
  return config.empty() ? "default" : config;
}

/// "cpu:0 AMD EPYC 9B45, 2 cores".
std::string device_text(const Device& device);

}  // namespace attune::cli
