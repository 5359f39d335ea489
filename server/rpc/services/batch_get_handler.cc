#include "server/rpc/services/batch_get_handler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"
#include "proto/base/clock.h"
#include "proto/convert/record_codec.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/http2/role_gate.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/messages/request_validator.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

// 60,000 answers with ten candidates each, more or less.
constexpr size_t kMaxReadyBytes = size_t{64} << 20;
constexpr size_t kMaxTerms = 256;
constexpr size_t kMaxTermsBytes = 4096;

// Beside the texts: the row, its control block, the slot in the table.
constexpr size_t kOverhead = 320;

size_t SizeOf(size_t key, const CachedRow& row) { return key + row.bytes.capacity() + kOverhead; }

// A cancel after this time means that the caller's deadline has passed; one before it means that
// the caller went away. It is a little before the deadline: the client cancels at its own deadline,
// and the server's is up to a hundredth later, as a timeout is rounded up on the wire.
SteadyTime EndOf(const grpc::CallbackServerContext& context) {
  constexpr absl::Duration kLatency = absl::Milliseconds(20);
  const gpr_timespec left = gpr_convert_clock_type(context.raw_deadline(), GPR_TIMESPAN);
  const absl::Duration time = absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
  return SteadyTime::Now() + (time * 49 / 50 - kLatency);
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
    const auto offset = static_cast<size_t>(in.CurrentPosition());
    if (!in.Skip(static_cast<int>(size))) return false;
    problems->push_back(request.substr(offset, size));
  }
  return in.ConsumedEntireMessage();
}

// What a row's key begins with.
std::string PrefixOf(const BatchTerms& terms) {
  return std::string(reinterpret_cast<const char*>(&terms.number), sizeof(terms.number));
}

grpc::Status WriteBatch(Batch* batch, grpc::ByteBuffer* out) {
  const std::vector<std::string_view> reply = batch->Reply();
  size_t size = 0;
  for (const std::string_view piece : reply) size += piece.size();
  const auto write = [&reply](uint8_t* bytes) {
    for (const std::string_view piece : reply) {
      std::memcpy(bytes, piece.data(), piece.size());
      bytes += piece.size();
    }
  };
  return WriteReply(size, write, out);
}

// Reads the request into `*batch`, as far as it takes with what is ready.
grpc::Status ReadBatch(const grpc::ByteBuffer& in, BatchGetHandler* handler, Batch* batch) {
  grpc::Slice bytes;
  if (in.Valid() && (in.TrySingleSlice(&bytes).ok() || in.DumpToSingleSlice(&bytes).ok())) {
    std::optional<Batch> prepared = handler->FindReady(
        std::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
    if (prepared.has_value()) {
      *batch = *std::move(prepared);
      return grpc::Status::OK;
    }
  }
  // Read again as a whole, which names every rule that it breaks.
  std::optional<lookup::LookupRequest> request;
  const grpc::Status read = ReadRequest<v1::BatchGetRequest>(in, &request);
  return read.ok() ? ExceptionStatus("BatchGet", "a valid request was refused") : read;
}

// A call that needs the tuner. It owns itself until gRPC is done with it, and the tuner's
// callback owns it too: that may come later.
class LookupReactor final : public SharedCall<grpc::ServerUnaryReactor>,
                            public std::enable_shared_from_this<LookupReactor> {
 public:
  LookupReactor(tuner::Tuner* tuner, BatchGetHandler* handler, grpc::CallbackServerContext* context,
                RequestLog log, Batch batch, grpc::ByteBuffer* out)
      : SharedCall(std::move(log)),
        tuner_(tuner),
        handler_(handler),
        context_(context),
        out_(out),
        batch_(std::move(batch)) {}

  // Returns before OnCancel or OnDone is called.
  void Start() {
    const std::shared_ptr<LookupReactor> self = self_ = shared_from_this();
    const grpc::Status started = CatchAll("BatchGet", [&] {
      const uint64_t token = tuner_->Lookup(
          std::move(batch_.missing), [self](absl::StatusOr<lookup::LookupResponse> response) {
            self->Answer(std::move(response));
          });
      MutexLock lock(mutex_);
      token_ = token;
      return grpc::Status::OK;
    });
    if (!started.ok()) End(started);
  }

  void OnCancel() override {
    const bool is_late = SteadyTime::Now() >= end_;
    if (is_late) {
      End(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the caller's deadline has passed"));
    }
    tuner_->EndLookup(token(), /*keep_work=*/is_late);
  }

  void OnDone() override { self_ = nullptr; }

 private:
  void Answer(absl::StatusOr<lookup::LookupResponse> response) {
    MutexLock lock(mutex_);
    if (ended_) return;
    EndLocked(CatchAll("BatchGet", [&] {
      if (!response.ok()) return messages::ToGrpcStatus(response.status());
      handler_->Complete(*std::move(response), &batch_);
      return WriteBatch(&batch_, out_);
    }));
  }

  tuner::Tuner* const tuner_;
  BatchGetHandler* const handler_;
  grpc::CallbackServerContext* const context_;  // these two are valid until the call has ended
  grpc::ByteBuffer* const out_;
  const SteadyTime end_ = EndOf(*context_);
  Batch batch_;  // no lock: Start uses it before the tuner has the callback, Answer after
  std::shared_ptr<LookupReactor> self_;
};

}  // namespace

std::shared_ptr<const CachedRow> ResponseCache::Find(std::string_view key) {
  const absl::string_view text(key.data(), key.size());
  const size_t hash = Map::hasher()(text);
  Shard& shard = ShardOf(hash);
  MutexLock lock(shard.mutex);
  const auto found = shard.rows.find(text, hash);
  return found == shard.rows.end() ? nullptr : found->second;
}

void ResponseCache::Put(std::string_view key, std::shared_ptr<const CachedRow> row) {
  const size_t size = SizeOf(key.size(), *row);
  if (size > shard_bytes_) return;
  Shard& shard = ShardOf(Map::hasher()(absl::string_view(key.data(), key.size())));
  Map dropped;  // freed without the lock
  MutexLock lock(shard.mutex);
  if (shard.bytes + size > shard_bytes_) {
    std::swap(dropped, shard.rows);
    shard.bytes = 0;
  }
  auto& slot = shard.rows[std::string(key)];
  if (slot != nullptr) shard.bytes -= SizeOf(key.size(), *slot);
  slot = std::move(row);
  shard.bytes += size;
}

std::vector<std::string_view> Batch::Reply() {
  // Tag and number of unanswered_count.
  constexpr size_t kUnansweredBytes = 6;
  const std::string& end = reply_end.empty() ? terms->reply_end : reply_end;
  size_t size = end.size();
  for (const auto& row : rows) size += row->bytes.size();
  size_t answered = rows.size();
  if (size > terms->max_reply_bytes) {
    while (answered > 1 && size + kUnansweredBytes > terms->max_reply_bytes) {
      size -= rows[--answered]->bytes.size();
    }
    v1::BatchGetResponse message;
    message.set_unanswered_count(static_cast<int>(rows.size() - answered));
    unanswered = message.SerializeAsString();
  }
  std::vector<std::string_view> reply;
  reply.reserve(answered + 2);
  for (size_t i = 0; i < answered; ++i) reply.emplace_back(rows[i]->bytes);
  reply.emplace_back(end);
  reply.emplace_back(unanswered);
  return reply;
}

BatchGetHandler::BatchGetHandler(tuner::Tuner* tuner) : tuner_(tuner), cache_(kMaxReadyBytes) {}

std::shared_ptr<const BatchTerms> BatchGetHandler::MakeTerms(const std::string& bytes,
                                                             const BatchTerms* before) {
  auto terms = std::make_shared<BatchTerms>();
  terms->version = tuner_->EnvironmentsVersion();
  google::protobuf::Arena arena;
  auto* request = google::protobuf::Arena::CreateMessage<v1::BatchGetRequest>(&arena);
  if (!request->ParseFromString(bytes)) return nullptr;
  std::vector<Violation> violations;
  std::optional<lookup::LookupRequest> valid =
      messages::ValidateWithoutProblems(*request, &violations);
  if (!valid.has_value()) return nullptr;
  terms->request = *std::move(valid);
  const int64_t wanted = request->max_reply_bytes();
  terms->max_reply_bytes = static_cast<size_t>(
      wanted == 0 ? http2::kDefaultReplyBytes : std::min<int64_t>(wanted, http2::kMaxReplyBytes));
  const absl::StatusOr<Environment> environment =
      tuner_->ResolveEnvironment(terms->request.environment, terms->request.program);
  if (!environment.ok() || bytes.size() > kMaxTermsBytes) return terms;
  terms->environment_text = environment->ToText();
  terms->reply_end = ReplyEnd(terms->environment_text);
  const bool same = before != nullptr && before->environment_text == terms->environment_text;
  terms->number = same ? before->number : ++last_number_;
  return terms;
}

std::shared_ptr<const BatchTerms> BatchGetHandler::TermsOf(const std::string& bytes) {
  const uint64_t version = tuner_->EnvironmentsVersion();
  std::shared_ptr<const BatchTerms> before;
  {
    MutexLock lock(mutex_);
    const auto found = terms_.find(bytes);
    if (found != terms_.end()) before = found->second;
  }
  if (before != nullptr && before->version == version) return before;
  std::shared_ptr<const BatchTerms> terms = MakeTerms(bytes, before.get());
  if (terms == nullptr || terms->number == 0) return terms;
  MutexLock lock(mutex_);
  // Numbers are not used again: rows of terms that are forgotten are not found any more.
  if (terms_.size() >= kMaxTerms) terms_.clear();
  terms_[bytes] = terms;
  return terms;
}

std::optional<Batch> BatchGetHandler::FindReady(std::string_view request) {
  std::vector<std::string_view> problems;
  std::string rest;
  if (!TakeApart(request, &problems, &rest) || problems.empty() ||
      problems.size() > size_t{messages::kMaxProblemsPerRequest}) {
    return std::nullopt;
  }
  Batch batch;
  batch.terms = TermsOf(rest);
  if (batch.terms == nullptr) return std::nullopt;
  batch.rows.resize(problems.size());
  const bool is_kept = batch.terms->number != 0;
  std::string key = PrefixOf(*batch.terms);
  const size_t prefix = key.size();
  google::protobuf::Arena arena;
  v1::ProblemSpec* spec = nullptr;
  std::vector<Violation> violations;
  int64_t hits = 0;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const std::string_view bytes = problems[i];
    key.replace(prefix, std::string::npos, bytes);
    auto row = is_kept ? cache_.Find(key) : nullptr;
    if (row != nullptr && row->stamp.unchanged()) {
      batch.rows[i] = std::move(row);
      ++hits;
      continue;
    }
    if (spec == nullptr) {
      spec = google::protobuf::Arena::CreateMessage<v1::ProblemSpec>(&arena);
      batch.missing = batch.terms->request;
    }
    if (!spec->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
    std::optional<ConvProblem> problem = ConvProblem::Create(*spec, &violations);
    if (!problem.has_value()) return std::nullopt;
    batch.missing.problems.push_back(*std::move(problem));
    batch.missing_bytes.emplace_back(bytes);
  }
  tuner_->CountHits(hits);
  return batch;
}

void BatchGetHandler::Complete(lookup::LookupResponse response, Batch* batch) {
  const BatchTerms& terms = *batch->terms;
  const std::string environment_text = response.environment.ToText();
  const bool is_kept = terms.number != 0 && environment_text == terms.environment_text;
  v1::BatchGetResponse message;
  size_t next = 0;
  for (auto& row : batch->rows) {
    if (row != nullptr) continue;
    const size_t missing = next++;
    lookup::LookupResult& result = response.results[missing];
    message.Clear();
    *message.add_results() = std::move(result.row);
    row = std::make_shared<const CachedRow>(CachedRow{message.SerializeAsString(), result.stamp});
    if (is_kept && result.stamp.unchanged()) {
      cache_.Put(absl::StrCat(PrefixOf(terms), batch->missing_bytes[missing]), row);
    }
  }
  batch->reply_end = ReplyEnd(environment_text);
}

std::string BatchGetHandler::ReplyEnd(const std::string& environment_text) const {
  v1::BatchGetResponse message;
  const google::protobuf::Descriptor& known = *v1::BatchGetRequest::descriptor();
  for (int i = 0; i < known.field_count(); ++i) message.add_known_fields(known.field(i)->number());
  *message.mutable_environment() =
      messages::FindEnvironment(tuner_->ListEnvironments(), environment_text);
  return message.SerializeAsString();
}

grpc::ServerUnaryReactor* BatchGetHandler::Handle(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* in,
                                                  grpc::ByteBuffer* out) {
  RequestLog log("convtune.v1.TuningService/BatchGet", context);
  const ScopedRequestId scope(log.request_id());
  Batch batch;
  grpc::Status status = CatchAll("BatchGet", [&] {
    grpc::Status read = ReadBatch(*in, this, &batch);
    return read.ok() && batch.terms->request.demand.on_miss != jobs::OnMiss::kNone
               ? http2::RequireRole(context, http2::Role::kTune, "on_miss: anything but NONE")
               : read;
  });
  if (status.ok() && !batch.complete()) {
    const auto reactor =
        std::make_shared<LookupReactor>(tuner_, this, context, log, std::move(batch), out);
    reactor->Start();
    return reactor.get();
  }
  if (status.ok()) {
    status = CatchAll("BatchGet", [&] { return WriteBatch(&batch, out); });
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  log.Finished(status);
  reactor->Finish(status);
  return reactor;
}

}  // namespace convtune::rpc::services
