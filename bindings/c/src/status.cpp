#include "status.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include <attune/core/error.hpp>
#include <attune/core/version.hpp>

namespace attune::c {
namespace {

/// The last failure of this thread. `kept` says it where there was memory for it, else `fixed`.
struct LastError {
  std::string kept;
  const char* fixed = "";
};
LastError& last_error() {
  thread_local LastError error;
  return error;
}

attune_status note(attune_status status, const char* text) noexcept {
  LastError& error = last_error();
  try {
    error.kept = text;
    error.fixed = nullptr;
  } catch (const std::bad_alloc&) {
    error.fixed = "out of memory, also for the text of an error";
  }
  return status;
}

}  // namespace

attune_status note_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return note(ATTUNE_INVALID_ARGUMENT, error.what());
  } catch (const Unsupported& error) {
    return note(ATTUNE_UNSUPPORTED, error.what());
  } catch (const Unavailable& error) {
    return note(ATTUNE_UNAVAILABLE, error.what());
  } catch (const NotTuned& error) {
    return note(ATTUNE_NOT_TUNED, error.what());
  } catch (const FileError& error) {
    return note(ATTUNE_CACHE_ERROR, error.what());
  } catch (const CacheError& error) {
    return note(ATTUNE_CACHE_ERROR, error.what());
  } catch (const DeviceFault& error) {
    return note(ATTUNE_DEVICE_FAULT, error.what());
  } catch (const ExecutionError& error) {
    return note(ATTUNE_EXECUTION_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return note(ATTUNE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return note(ATTUNE_INTERNAL, error.what());
  } catch (...) {
    return note(ATTUNE_INTERNAL, "something was thrown that is no std::exception");
  }
}

char* copy_text(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace attune::c

uint32_t attune_abi_version() noexcept { return ATTUNE_ABI_VERSION; }

const char* attune_version() noexcept { return attune::kVersion.data(); }

const char* attune_status_name(attune_status status) noexcept {
  switch (status) {
    case ATTUNE_OK:
      return "ATTUNE_OK";
    case ATTUNE_INVALID_ARGUMENT:
      return "ATTUNE_INVALID_ARGUMENT";
    case ATTUNE_UNSUPPORTED:
      return "ATTUNE_UNSUPPORTED";
    case ATTUNE_UNAVAILABLE:
      return "ATTUNE_UNAVAILABLE";
    case ATTUNE_NOT_TUNED:
      return "ATTUNE_NOT_TUNED";
    case ATTUNE_CACHE_ERROR:
      return "ATTUNE_CACHE_ERROR";
    case ATTUNE_EXECUTION_ERROR:
      return "ATTUNE_EXECUTION_ERROR";
    case ATTUNE_DEVICE_FAULT:
      return "ATTUNE_DEVICE_FAULT";
    case ATTUNE_OUT_OF_MEMORY:
      return "ATTUNE_OUT_OF_MEMORY";
    case ATTUNE_INTERNAL:
      return "ATTUNE_INTERNAL";
    default:
      return "?";
  }
}

const char* attune_last_error() noexcept {
  const attune::c::LastError& error = attune::c::last_error();
  return error.fixed != nullptr ? error.fixed : error.kept.c_str();
}

void attune_free(char* text) noexcept { std::free(text); }
