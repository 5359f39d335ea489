#include "server/logging/log.h"

#include <spdlog/spdlog.h>

namespace convtune::log {
namespace {

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

bool IsOn(Level level) { return spdlog::should_log(ToSpdlog(level)); }

void Write(Level level, std::string_view message) {
  spdlog::log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace convtune::log
