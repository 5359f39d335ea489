#include "server/rpc/services/batch_get_handler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"
#include "proto/convert/problem_proto.h"
#include "proto/convert/record_codec.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/http2/role_gate.h"
#include "server/rpc/messages/field_checker.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/messages/request_validator.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

using std::chrono::system_clock;

// 60,000 answers with ten candidates each, more or less.
constexpr size_t kMaxReadyBytes = size_t{64} << 20;
constexpr size_t kMaxContexts = 256;
constexpr size_t kMaxContextBytes = 4096;

// A client's cancel at its deadline arrives before the server's own deadline:
// on the wire a timeout is rounded up, by at most a hundredth.
bool DeadlineHasPassed(const grpc::CallbackServerContext& context, system_clock::time_point start) {
  const system_clock::time_point deadline = context.deadline();
  if (deadline == system_clock::time_point::max()) {
    return false;
  }
  constexpr auto kLatency = std::chrono::milliseconds(20);
  const auto slack = (deadline - start) / 50 + kLatency;
  return system_clock::now() + slack >= deadline;
}

// The bytes of a BatchGetRequest's problems, which point into the request, and
// all its other fields as they came. Nothing is said of what the fields hold.
// False: the bytes are no such message.
bool TakeApart(std::string_view request, std::vector<std::string_view>* problems,
               std::string* rest) {
  using google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kProblems = WireFormatLite::MakeTag(v1::BatchGetRequest::kProblemsFieldNumber,
                                                         WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  constexpr size_t kLeastProblem = 24;
  problems->reserve(request.size() / kLeastProblem + 1);
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(request.data()),
                                            static_cast<int>(request.size()));
  google::protobuf::io::StringOutputStream stream(rest);
  google::protobuf::io::CodedOutputStream others(&stream);
  while (const uint32_t tag = in.ReadTag()) {
    if (tag != kProblems) {
      if (!WireFormatLite::SkipField(&in, tag, &others)) return false;
      continue;
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size) || size > request.size()) return false;
    const auto place = static_cast<size_t>(in.CurrentPosition());
    if (!in.Skip(static_cast<int>(size))) return false;
    problems->push_back(request.substr(place, size));
  }
  return in.ConsumedEntireMessage();
}

grpc::Status WriteBatch(const Batch& batch, grpc::ByteBuffer* out) {
  return WriteReply(
      batch.ReplySize(), [&batch](uint8_t* bytes) { batch.WriteReply(bytes); }, out);
}

// Reads the request into `*batch`, as far as it takes with what is ready.
grpc::Status ReadBatch(const grpc::ByteBuffer& in, BatchGetHandler* handler, Batch* batch) {
  grpc::Slice bytes;
  grpc::ByteBuffer shared = in;
  if (shared.Valid() &&
      (shared.TrySingleSlice(&bytes).ok() || shared.DumpToSingleSlice(&bytes).ok())) {
    std::optional<Batch> prepared = handler->FindReady(
        std::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
    if (prepared.has_value()) {
      *batch = *std::move(prepared);
      return grpc::Status::OK;
    }
  }
  std::optional<lookup::LookupRequest> request;
  grpc::Status read = ReadRequest<v1::BatchGetRequest>(in, &request);
  if (read.ok()) *batch = BatchGetHandler::Whole(*std::move(request));
  return read;
}

jobs::OnMiss OnMissOf(const Batch& batch) {
  return batch.complete() ? batch.context->request.demand.on_miss : batch.missing.demand.on_miss;
}

// A call that needs the tuner.
class LookupReactor : public grpc::ServerUnaryReactor {
 public:
  LookupReactor(tuner::Tuner* tuner, BatchGetHandler* handler, grpc::CallbackServerContext* context,
                RequestLog log, Batch batch, grpc::ByteBuffer* out)
      : context_(context),
        log_(std::move(log)),
        state_(std::make_shared<State>(tuner, handler, std::move(batch), this, out)) {}

  void Start() {
    const std::shared_ptr<State> state = state_;
    const grpc::Status started = CatchAll("BatchGet", [&] {
      state->SetToken(state->tuner->Lookup(
          std::move(state->batch.missing),
          [state](absl::StatusOr<lookup::LookupResponse> response) { state->Answer(response); }));
      return grpc::Status::OK;
    });
    if (!started.ok()) {
      state->Finish(started);
    }
  }

  void OnCancel() override {
    const std::shared_ptr<State> state = state_;  // Finish may end this
    if (DeadlineHasPassed(*context_, start_)) {
      state->Finish(
          grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the caller's deadline has passed"));
      state->End(&tuner::Tuner::AbandonLookup);
    } else {
      state->End(&tuner::Tuner::CancelLookup);
    }
  }

  void OnDone() override { delete this; }

 private:
  using EndLookup = void (tuner::Tuner::*)(uint64_t);

  // Outlives the reactor where the tuner calls back late.
  struct State {
    State(tuner::Tuner* t, BatchGetHandler* h, Batch b, LookupReactor* r, grpc::ByteBuffer* o)
        : tuner(t), handler(h), out(o), batch(std::move(b)), reactor(r) {}

    void Answer(const absl::StatusOr<lookup::LookupResponse>& response) {
      MutexLock lock(mutex);
      if (reactor == nullptr) {
        return;
      }
      FinishLocked(CatchAll("BatchGet", [&] {
        if (!response.ok()) {
          return messages::ToGrpcStatus(response.status());
        }
        handler->Complete(*response, &batch);
        return WriteBatch(batch, out);
      }));
    }

    void Finish(const grpc::Status& status) {
      MutexLock lock(mutex);
      FinishLocked(status);
    }

    void FinishLocked(const grpc::Status& status) REQUIRES(mutex) {
      if (LookupReactor* const call = std::exchange(reactor, nullptr); call != nullptr) {
        call->log_.Finished(status);
        call->Finish(status);
      }
    }

    void SetToken(uint64_t value) {
      EndLookup how = nullptr;
      {
        MutexLock lock(mutex);
        token = value;
        how = end;
      }
      if (how != nullptr) (tuner->*how)(value);
    }

    // The caller is gone; `how` it went is a method of the tuner.
    void End(EndLookup how) {
      uint64_t value = 0;
      {
        MutexLock lock(mutex);
        end = how;
        if (!token.has_value()) {
          return;
        }
        value = *token;
      }
      (tuner->*how)(value);
    }

    tuner::Tuner* const tuner;
    BatchGetHandler* const handler;
    grpc::ByteBuffer* const out;  // valid until the call is finished
    Batch batch;                  // whoever answers has it for itself
    Mutex mutex;
    LookupReactor* reactor GUARDED_BY(mutex);  // null once the call is finished
    std::optional<uint64_t> token GUARDED_BY(mutex);
    EndLookup end GUARDED_BY(mutex) = nullptr;  // null: the caller waits
  };

  grpc::CallbackServerContext* const context_;
  const RequestLog log_;
  const system_clock::time_point start_ = system_clock::now();
  const std::shared_ptr<State> state_;
};

}  // namespace

Batch::Shape Batch::MakeShape() const {
  // Tag and number of unanswered_count.
  constexpr size_t kUnansweredBytes = 6;
  const int64_t wanted = context->request.max_reply_bytes;
  const auto limit = static_cast<size_t>(
      wanted == 0 ? http2::kDefaultReplyBytes : std::min<int64_t>(wanted, http2::kMaxReplyBytes));
  Shape shape;
  for (const auto& row : rows) shape.row_bytes += row->bytes.size();
  shape.rows = rows.size();
  const size_t others = EnvironmentOfReply().size();
  if (shape.row_bytes + others <= limit) return shape;
  while (shape.rows > 1 && shape.row_bytes + others + kUnansweredBytes > limit) {
    shape.row_bytes -= rows[--shape.rows]->bytes.size();
  }
  v1::BatchGetResponse message;
  message.set_unanswered_count(static_cast<int>(rows.size() - shape.rows));
  shape.unanswered = message.SerializeAsString();
  return shape;
}

size_t Batch::ReplySize() const {
  const Shape shape = MakeShape();
  return shape.row_bytes + EnvironmentOfReply().size() + shape.unanswered.size();
}

void Batch::WriteReply(uint8_t* out) const {
  const auto write = [&out](const std::string& bytes) {
    std::memcpy(out, bytes.data(), bytes.size());
    out += bytes.size();
  };
  const Shape shape = MakeShape();
  for (size_t i = 0; i < shape.rows; ++i) write(rows[i]->bytes);
  write(EnvironmentOfReply());
  write(shape.unanswered);
}

BatchGetHandler::BatchGetHandler(tuner::Tuner* tuner) : tuner_(tuner), cache_(kMaxReadyBytes) {}

uint32_t BatchGetHandler::ScopeOf(const std::string& text) {
  MutexLock lock(mutex_);
  // Numbers are not used again, so rows of those that are forgotten are not
  // found any more.
  if (scopes_.size() >= kMaxContexts) scopes_.clear();
  uint32_t& number = scopes_[text];
  if (number == 0) number = ++last_scope_;
  return number;
}

std::shared_ptr<const BatchContext> BatchGetHandler::MakeContext(const std::string& rest) {
  auto context = std::make_shared<BatchContext>();
  context->version = tuner_->EnvironmentsVersion();
  google::protobuf::Arena arena;
  auto* request = google::protobuf::Arena::CreateMessage<v1::BatchGetRequest>(&arena);
  if (!request->ParseFromString(rest)) return nullptr;
  std::vector<Violation> violations;
  std::optional<lookup::LookupRequest> valid =
      messages::ValidateWithoutProblems(*request, &violations);
  if (!valid.has_value()) return nullptr;
  context->request = *std::move(valid);
  const absl::StatusOr<Environment> environment =
      tuner_->ResolveEnvironment(context->request.environment, context->request.program);
  if (!environment.ok()) return nullptr;
  const std::string text = environment->ToText();
  context->scope = ScopeOf(absl::StrCat(text, "\n", request->constraints().SerializeAsString()));
  context->environment = EnvironmentBytes(text, context->request.demand);
  return context;
}

std::shared_ptr<const BatchContext> BatchGetHandler::ContextOf(const std::string& rest) {
  if (rest.size() > kMaxContextBytes) return nullptr;
  const uint64_t version = tuner_->EnvironmentsVersion();
  {
    MutexLock lock(mutex_);
    const auto found = contexts_.find(rest);
    if (found != contexts_.end() && found->second->version == version) return found->second;
  }
  std::shared_ptr<const BatchContext> context = MakeContext(rest);
  if (context == nullptr) return nullptr;
  MutexLock lock(mutex_);
  if (contexts_.size() >= kMaxContexts) contexts_.clear();
  contexts_[rest] = context;
  return context;
}

std::optional<Batch> BatchGetHandler::FindReady(std::string_view request) {
  std::vector<std::string_view> problems;
  std::string rest;
  if (!TakeApart(request, &problems, &rest) || problems.empty() ||
      problems.size() > size_t{messages::kMaxProblemsPerRequest}) {
    return std::nullopt;
  }
  Batch batch;
  batch.context = ContextOf(rest);
  if (batch.context == nullptr) return std::nullopt;
  batch.rows.resize(problems.size());
  google::protobuf::Arena arena;
  v1::ProblemSpec* spec = nullptr;
  std::vector<Violation> violations;
  int64_t hits = 0;
  absl::Duration saved;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const std::string_view bytes = problems[i];
    auto row = cache_.Find(batch.context->scope, bytes);
    if (row != nullptr && tuner_->StillHolds(row->source, batch.context->request.demand)) {
      saved += row->source.facts.elapsed;
      batch.rows[i] = std::move(row);
      ++hits;
      continue;
    }
    if (spec == nullptr) {
      spec = google::protobuf::Arena::CreateMessage<v1::ProblemSpec>(&arena);
      batch.missing = batch.context->request;
    }
    if (!spec->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
    std::optional<ConvProblem> problem = ProblemFromProto(*spec, "", &violations);
    if (!problem.has_value()) return std::nullopt;
    batch.missing.problems.push_back(*std::move(problem));
    batch.missing_bytes.emplace_back(bytes);
  }
  tuner_->CountHits(hits, saved);
  return batch;
}

Batch BatchGetHandler::Whole(lookup::LookupRequest request) {
  Batch batch;
  auto context = std::make_shared<BatchContext>();
  context->request.max_reply_bytes = request.max_reply_bytes;
  context->request.demand = request.demand;
  batch.context = std::move(context);
  batch.rows.resize(request.problems.size());
  batch.missing = std::move(request);
  return batch;
}

void BatchGetHandler::Complete(const lookup::LookupResponse& response, Batch* batch) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<v1::BatchGetResponse>(&arena);
  size_t next = 0;
  for (auto& row : batch->rows) {
    if (row != nullptr) continue;
    const size_t place = next++;
    const lookup::LookupResult& result = response.results[place];
    message->Clear();
    messages::Fill(result, message->add_results());
    auto made = std::make_shared<CachedRow>();
    made->bytes = message->SerializeAsString();
    const auto* answer = std::get_if<lookup::Answer>(&result.outcome);
    if (batch->context->scope != 0 && answer != nullptr && !answer->fresh &&
        tuner_->StillHolds(result.source, batch->context->request.demand)) {
      made->source = result.source;
      cache_.Put(batch->context->scope, batch->missing_bytes[place], made);
    }
    row = std::move(made);
  }
  batch->environment =
      EnvironmentBytes(response.environment.ToText(), batch->context->request.demand);
}

std::string BatchGetHandler::EnvironmentBytes(const std::string& text,
                                              const jobs::Demand& demand) const {
  v1::BatchGetResponse message;
  if (demand.limits_age()) *message.mutable_max_age() = convtune::ToProto(demand.max_age);
  *message.mutable_environment() =
      messages::ToProto(messages::FindEnvironment(tuner_->ListEnvironments(), text));
  return message.SerializeAsString();
}

grpc::ServerUnaryReactor* BatchGetHandler::Handle(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* in,
                                                  grpc::ByteBuffer* out) {
  RequestLog log("BatchGet", context);
  const ScopedRequestId scope(log.request_id());
  Batch batch;
  grpc::Status status = CatchAll("BatchGet", [&] {
    grpc::Status read = ReadBatch(*in, this, &batch);
    return read.ok() && OnMissOf(batch) != jobs::OnMiss::kNone
               ? http2::RequireRole(*context, http2::Role::kTune, "on_miss: anything but NONE")
               : read;
  });
  if (status.ok() && !batch.complete()) {
    auto* reactor = new LookupReactor(tuner_, this, context, log, std::move(batch), out);
    reactor->Start();
    return reactor;
  }
  if (status.ok()) {
    status = CatchAll("BatchGet", [&] { return WriteBatch(batch, out); });
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  log.Finished(status);
  reactor->Finish(status);
  return reactor;
}

}  // namespace convtune::rpc::services
