// Problems as text: a SPEC in words or JSON, expanded, read by its op, and written again.
#include <algorithm>
#include <string>

#include <attune/core/context.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/register.hpp>

#include "fuzz.hpp"
#include "problems/spec.hpp"
#include "program/exit_code.hpp"

// A call of an op would ask for it; reading a problem calls none, and the target links no kernel.
attune::Context& attune::default_context() { std::abort(); }

namespace {

using namespace attune;       // NOLINT(google-build-using-namespace)
using namespace attune::cli;  // NOLINT(google-build-using-namespace)

const Registry& registry() {
  static const Registry* const kept = [] {
    auto* made = new Registry();
    ops::register_ops(*made);
    return made;
  }();
  return *kept;
}

/// What a problem's text says is the problem.
void check_round_trip(const NamedProblem& named) {
  const OpInfo* op = registry().find_op(named.op);
  if (op == nullptr) op = registry().ops().front();
  const AnyProblem problem = op->parse(named.params);
  const std::string text = op->text(problem, false);
  const AnyProblem again = op->parse(parse_params(text, ' '));
  fuzz::expect(op->text(again, false) == text, "a problem's text to mean the problem");
  fuzz::expect(op->values(again) == op->values(problem), "equal fields from equal text");
}

void read_spec(std::string_view text) {
  const Spec spec = text.starts_with('{') ? parse_spec_json(text) : parse_spec_text(text);
  const std::vector<NamedProblem> problems = expand(spec);
  fuzz::expect(problems.size() <= kMaxProblems, "no more problems than the limit");
  constexpr std::size_t kMost = 8;
  for (std::size_t i = 0; i < std::min(kMost, problems.size()); ++i) check_round_trip(problems[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read_spec(attune::fuzz::text_of(data, size));
  } catch (const UsageError&) {
    return 0;  // no SPEC
  } catch (const InvalidArgument&) {
    return 0;  // no problem of the op
  }
  return 0;
}
