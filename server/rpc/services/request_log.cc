#include "server/rpc/services/request_log.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "proto/base/clock.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/role_gate.h"
#include "server/rpc/services/call_stats.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxRequestIdLength = 128;

thread_local std::string_view current_request_id;

std::string GenerateRequestId() {
  static const uint64_t process = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }();
  static std::atomic<uint64_t> next{1};
  return absl::StrCat(absl::Hex(process, absl::kZeroPad16), "-", next.fetch_add(1));
}

std::string ReadRequestId(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kRequestIdKey);
  if (found != context.client_metadata().end()) {
    const std::string_view id(found->second.data(), found->second.size());
    if (!id.empty() && id.size() <= kMaxRequestIdLength &&
        std::all_of(id.begin(), id.end(), absl::ascii_isprint)) {
      return std::string(id);
    }
  }
  return GenerateRequestId();
}

log::Level LevelOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::NOT_FOUND:  // an answer, of which there may be thousands
      return log::Level::kDebug;
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::DATA_LOSS:
      return log::Level::kError;
    default:
      return log::Level::kInfo;
  }
}

// "BatchGet" of "convtune.v1.TuningService/BatchGet".
std::string_view SimpleName(std::string_view method) {
  return method.substr(method.rfind('/') + 1);
}

// Of a message with more bytes of JSON the line of audit has the length alone.
constexpr size_t kMostAudited = 16'384;

nlohmann::ordered_json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  if (text.size() > kMostAudited) return {{"omitted_bytes", text.size()}};
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string_view CurrentRequestId() { return current_request_id; }

ScopedRequestId::ScopedRequestId(std::string_view id) : previous_(current_request_id) {
  current_request_id = id;
}

ScopedRequestId::~ScopedRequestId() { current_request_id = previous_; }

RequestLog::RequestLog(std::string_view method, grpc::CallbackServerContext* context)
    : method_(method),
      request_id_(ReadRequestId(*context)),
      context_(context),
      start_(SteadyTime::Now()) {
  context->AddInitialMetadata(kRequestIdKey, request_id_);
  CallStats::Global().Started(method_);
}

void RequestLog::Finished(const grpc::Status& status) const {
  const absl::Duration elapsed = SteadyTime::Now() - start_;
  CallStats::Global().Ended(method_, static_cast<absl::StatusCode>(status.error_code()), elapsed);
  const log::Level level = LevelOf(status.error_code());
  if (!log::IsOn(level)) {
    return;
  }
  const ScopedRequestId scope(request_id_);
  log::Write(
      level,
      absl::StrFormat("%s from %s: %s in %.1f ms%s%s", SimpleName(method_), context_->peer(),
                      absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
                      absl::ToDoubleMilliseconds(elapsed), status.ok() ? "" : ": ",
                      status.error_message()));
}

void RequestLog::Audit(const google::protobuf::Message& request,
                       const google::protobuf::Message* before,
                       const google::protobuf::Message* after, const grpc::Status& status) const {
  nlohmann::ordered_json line;
  if (std::string who = http2::CertificateOf(context_); !who.empty()) line["who"] = std::move(who);
  line["from"] = context_->peer();
  line["method"] = SimpleName(method_);
  line["request"] = ToJson(request);
  line["status"] = absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
  if (!status.ok()) line["error"] = status.error_message();
  if (before != nullptr) line["before"] = ToJson(*before);
  if (after != nullptr && after->ByteSizeLong() > 0) line["after"] = ToJson(*after);
  const ScopedRequestId scope(request_id_);
  log::Audit(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace convtune::rpc::services
