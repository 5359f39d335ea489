#include "server/rpc/library_log.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <string>

#include "google/protobuf/stubs/logging.h"

namespace convtune::rpc {
namespace {

void LogFromGrpc(gpr_log_func_args* args) {
  const auto level =
      args->severity == GPR_LOG_SEVERITY_ERROR ? spdlog::level::warn : spdlog::level::debug;
  spdlog::log(level, "grpc: {}", args->message);
}

void LogFromProtobuf(google::protobuf::LogLevel severity, const char* /*file*/, int /*line*/,
                     const std::string& message) {
  const auto level =
      severity >= google::protobuf::LOGLEVEL_WARNING ? spdlog::level::warn : spdlog::level::debug;
  spdlog::log(level, "protobuf: {}", message);
}

}  // namespace

void CaptureLibraryLogs() {
  gpr_set_log_function(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
}

}  // namespace convtune::rpc
