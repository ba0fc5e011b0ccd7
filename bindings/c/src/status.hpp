// How a function of attune.h ends: with a status, and a sentence for its thread when it failed.
#pragma once

#include <string>
#include <utility>

#include <attune/attune.h>

namespace attune::c {

/// The status of the exception that is being handled; attune_last_error() says what it says.
attune_status note_exception() noexcept;

/// Runs `body`, which may throw whatever attune throws.
template <class Body>
attune_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return ATTUNE_OK;
  } catch (...) {
    return note_exception();
  }
}

/// A copy for attune_free().
char* copy_text(const std::string& text);

}  // namespace attune::c
