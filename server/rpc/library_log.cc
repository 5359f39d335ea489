#include "server/rpc/library_log.h"

#include <grpc/support/log.h>

#include <string>

#include "google/protobuf/stubs/logging.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/handshakes.h"

namespace convtune::rpc {
namespace {

void LogFromGrpc(gpr_log_func_args* args) {
  // A handshake's failure has its line, with the peer, already.
  const auto level = args->severity == GPR_LOG_SEVERITY_ERROR && !http2::TakeHandshakeFailed()
                         ? log::Level::kWarn
                         : log::Level::kDebug;
  log::Write(level, "grpc: $0", args->message);
}

void LogFromProtobuf(google::protobuf::LogLevel severity, const char* /*file*/, int /*line*/,
                     const std::string& message) {
  const auto level =
      severity >= google::protobuf::LOGLEVEL_WARNING ? log::Level::kWarn : log::Level::kDebug;
  log::Write(level, "protobuf: $0", message);
}

}  // namespace

void CaptureLibraryLogs() {
  gpr_set_log_function(LogFromGrpc);
  google::protobuf::SetLogHandler(LogFromProtobuf);
}

}  // namespace convtune::rpc
