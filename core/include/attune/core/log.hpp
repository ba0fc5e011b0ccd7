// Log lines: what attune tells the people who run a program. Never data, never a substitute for an
// exception.
#pragma once

#include <functional>
#include <string_view>

namespace attune {

enum class LogLevel { kDebug, kInfo, kWarning, kOff };

using LogSink = std::function<void(LogLevel level, std::string_view message)>;

/// Where lines go; an empty function restores the default: one line each on stderr, from level
/// `ATTUNE_LOG` on on. The sink may be called from any thread.
void set_log_sink(LogSink sink);

/// The least level that is written. Default: ATTUNE_LOG, or info.
LogLevel log_level();
void set_log_level(LogLevel level);

void log(LogLevel level, std::string_view message);

/// Writes the message once in this process, however often it is asked to.
void log_once(LogLevel level, std::string_view message);

}  // namespace attune
