#include "proto/monitoring/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/model/text.h"

namespace convtune::log {
namespace {

// Lines of audit alone have this level. Every --log-level includes it.
constexpr auto kAudit = spdlog::level::critical;
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// Keeps a line one line.
std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) {
      out += kReplacement;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7F) {
      out += absl::StrFormat("\\u%04x", c);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

class LogFormatter final : public spdlog::formatter {
 public:
  LogFormatter(bool json, RequestId request_id) : json_(json), request_id_(request_id) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                                              absl::FromChrono(message.time), absl::UTCTimeZone());
    const auto level_view = spdlog::level::to_string_view(message.level);
    const bool audit = message.level == kAudit;
    const std::string level = audit ? "audit" : std::string(level_view.data(), level_view.size());
    const std::string_view text(message.payload.data(), message.payload.size());
    const std::string id(request_id_ != nullptr ? request_id_() : "");
    std::string line;
    if (json_) {
      nlohmann::ordered_json object = {{"ts", time}, {"level", level}};
      if (audit) {
        object["audit"] = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      } else {
        object["message"] = text;
      }
      if (!id.empty()) object["request_id"] = id;
      line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    } else {
      line = absl::StrFormat("%s %s %s", time, level, Escape(text));
      line += id.empty() ? "" : " request_id=" + Escape(id);
    }
    line += '\n';
    out.append(line.data(), line.data() + line.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LogFormatter>(json_, request_id_);
  }

 private:
  const bool json_;
  const RequestId request_id_;
};

spdlog::level::level_enum ToSpdlog(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

}  // namespace

bool IsOn(Level level) { return spdlog::should_log(ToSpdlog(level)); }

void Write(Level level, std::string_view message) {
  spdlog::log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

void Audit(std::string_view object) {
  spdlog::log(kAudit, spdlog::string_view_t(object.data(), object.size()));
}

std::unique_ptr<spdlog::formatter> NewFormatter(bool json, RequestId request_id) {
  return std::make_unique<LogFormatter>(json, request_id);
}

void Init(bool json, const std::string& level, RequestId request_id) {
  auto logger = std::make_shared<spdlog::logger>("convtune",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(NewFormatter(json, request_id));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void SetLevel(const std::string& level) {
  spdlog::default_logger()->set_level(spdlog::level::from_str(level));
}

}  // namespace convtune::log
