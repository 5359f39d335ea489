#include "proto/monitoring/log.h"

#include <poll.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/text.h"
#include "proto/monitoring/lost_lines.h"

namespace convtune::log {
namespace {

// Lines of audit alone have this level. Every --log-level includes it.
constexpr auto kAudit = spdlog::level::critical;
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD
// Most bytes of lines that wait to be written. A line of audit is lost later than another, since it
// has more room.
constexpr size_t kMostWaiting = 1 << 20;
constexpr size_t kMostWaitingForAudit = 4 << 20;
// How long whoever logs waits for the line to be written, and the program's end for all lines.
constexpr absl::Duration kPatience = absl::Milliseconds(200);
constexpr absl::Duration kPatienceAtEnd = absl::Seconds(2);

std::atomic<int64_t> lost_audit{0};
std::atomic<int64_t> lost_others{0};

// The text with control characters and bytes that are not UTF-8 escaped, so that it is one line.
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

// A StderrSink writes to standard error on a thread of its own, since a pipe that nobody reads and
// a disk that hangs take any time. Whoever logs waits until the line is written, so that a crash
// loses none, but only while lines are written in time. It is never destroyed: the thread may stand
// still in a write.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  StderrSink() {
    std::thread([this] { Run(); }).detach();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const bool audit = message.level == kAudit;
    MutexLock lock(mutex_);
    // One line may be longer than all that may wait.
    if (waiting_bytes_ > 0 &&
        waiting_bytes_ + text.size() > (audit ? kMostWaitingForAudit : kMostWaiting)) {
      Lose(audit, "nobody reads it");
      return;
    }
    waiting_bytes_ += text.size();
    lines_.push_back({std::string(text.data(), text.size()), audit});
    changed_.SignalAll();
    ++taken_;
    if (!slow_) slow_ = !AwaitWritten(taken_, kPatience);
  }
  void flush_() override {
    MutexLock lock(mutex_);
    AwaitWritten(taken_, kPatienceAtEnd);
  }

 private:
  struct Line {
    std::string text;
    bool audit = false;
  };
  // Lines that are lost, which the log does not say yet.
  struct Unsaid {
    int64_t lines = 0;
    int64_t audit = 0;  // of them
    absl::Time since;
    std::string why;
  };

  // False if it takes too long.
  bool AwaitWritten(int64_t line, absl::Duration patience) REQUIRES(mutex_) {
    const SteadyTime until = SteadyTime::Now() + patience;
    while (written_ < line) {
      const absl::Duration left = until - SteadyTime::Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
    }
    return true;
  }

  void Lose(bool audit, const char* why) REQUIRES(mutex_) {
    if (unsaid_.lines == 0) unsaid_.since = SystemClock().Now();
    ++unsaid_.lines;
    unsaid_.audit += audit ? 1 : 0;
    unsaid_.why = why;
    ++(audit ? lost_audit : lost_others);
  }

  // As lines of the log.
  std::string ToLines(const Unsaid& lost) {
    const std::string since =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", lost.since, absl::UTCTimeZone());
    spdlog::memory_buf_t text;
    formatter_->format(
        {"", spdlog::level::err,
         absl::StrFormat("%d lines of this log were lost from %s on, %d of audit: %s", lost.lines,
                         since, lost.audit, lost.why)},
        text);
    if (lost.audit > 0) {
      const nlohmann::ordered_json object = {
          {"lost", lost.audit}, {"since", since}, {"why", lost.why}};
      formatter_->format({"", kAudit, object.dump()}, text);
    }
    return {text.data(), text.size()};
  }

  // 0, or the error.
  int Write(const std::string& line) {
    const std::string text = torn_ ? "\n" + line : line;
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = write(STDERR_FILENO, text.data() + done, text.size() - done);
      if (wrote > 0) {
        done += static_cast<size_t>(wrote);
        torn_ = done < text.size();
      } else if (errno == EAGAIN) {
        // Whoever has the other end may have made it so.
        pollfd writable = {STDERR_FILENO, POLLOUT, 0};
        poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        return errno;
      }
    }
    return 0;
  }

  void Run() {
    while (true) {
      Line line;
      {
        MutexLock lock(mutex_);
        while (lines_.empty()) changed_.Wait(mutex_);
        line = std::move(lines_.front());
        lines_.pop_front();
      }
      const int error = Write(line.text);
      Unsaid lost;
      {
        MutexLock lock(mutex_);
        waiting_bytes_ -= line.text.size();
        if (error != 0) Lose(line.audit, std::strerror(error));
        if (error == 0 && lines_.empty()) std::swap(lost, unsaid_);
      }
      const bool said = lost.lines == 0 || Write(ToLines(lost)) == 0;
      MutexLock lock(mutex_);
      if (!said) {
        // More may have been lost meanwhile.
        lost.lines += unsaid_.lines;
        lost.audit += unsaid_.audit;
        unsaid_ = std::move(lost);
      }
      ++written_;
      if (lines_.empty()) slow_ = false;
      changed_.SignalAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<Line> lines_ GUARDED_BY(mutex_);
  size_t waiting_bytes_ GUARDED_BY(mutex_) = 0;  // of those, and of the one that is being written
  int64_t taken_ GUARDED_BY(mutex_) = 0;         // lines that were put into lines_ so far
  // Lines that the thread is done with, failed ones too. While the thread says what was lost, the
  // line before that does not count yet.
  int64_t written_ GUARDED_BY(mutex_) = 0;
  bool slow_ GUARDED_BY(mutex_) = false;  // lines wait, and nobody waits for them
  Unsaid unsaid_ GUARDED_BY(mutex_);
  bool torn_ = false;  // the last line has no end; of the thread alone
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
  static const auto* const sink = new spdlog::sink_ptr(std::make_shared<StderrSink>());
  auto logger = std::make_shared<spdlog::logger>("convtune", *sink);
  logger->set_formatter(NewFormatter(json, request_id));
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  // Lines wait then only if whoever reads them is slow.
  std::atexit([] { (*sink)->flush(); });
}

Lost LostLines() { return {lost_audit, lost_others}; }

void SetLevel(const std::string& level) {
  spdlog::default_logger()->set_level(spdlog::level::from_str(level));
}

}  // namespace convtune::log
