// What the opaque types of attune.h are.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include <attune/attune.h>
#include <attune/attune.hpp>

struct attune_context {
  std::shared_ptr<attune::Context> context;
};

struct attune_plan {
  using AnyPlan = std::variant<attune::Plan<attune::ops::RecurrentAttention>,
                               attune::Plan<attune::ops::RecurrentAttentionBackward>,
                               attune::Plan<attune::ops::RecurrentDecode>>;
  std::shared_ptr<attune::Context> context;  // kept alive; null: the process's own
  attune::ShortName platform;                // that was asked for
  AnyPlan plan;
  std::string config;  // as an override
};

struct attune_scopes {
  attune::CapturedScopes captured;
};
