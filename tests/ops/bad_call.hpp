// A call that is refused, and in which words.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/error.hpp>

#include "ops/spy_context.hpp"

namespace attune::test {

template <class Call>
struct BadCall {
  std::string name;
  void (*spoil)(Call&);  // turns a legal call into this one
  std::string message;   // what it starts with, after the op's name
  friend std::ostream& operator<<(std::ostream& out, const BadCall& bad) { return out << bad.name; }
};

template <class Call>
std::string bad_call_name(const testing::TestParamInfo<BadCall<Call>>& test) {
  return test.param.name;
}

/// Expects InvalidArgument, and that no kernel ran.
template <class Call>
void expect_refused(const BadCall<Call>& bad, std::string_view op) {
  SpyContext context;
  Call call;
  call.options.call.context = &context.context();
  bad.spoil(call);
  try {
    call.run();
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(str(op, ": ", bad.message)));
  }
  EXPECT_EQ(context.spy.runs, 0);
}

}  // namespace attune::test
