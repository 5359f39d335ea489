#include "server/rpc/batch_answerer.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "proto/convert/problem_proto.h"
#include "server/lookup/lookup_decision.h"
#include "server/rpc/field_checker.h"
#include "server/rpc/proto_converter.h"
#include "server/rpc/request_validator.h"

namespace convtune {
namespace {

// 60,000 answers with ten candidates each, more or less.
constexpr size_t kMaxReadyBytes = size_t{64} << 20;
constexpr size_t kMaxContexts = 256;
constexpr size_t kMaxContextBytes = 4096;

bool IsHit(const ReadyRow& row, const BatchContext& context) {
  return lookup::IsEnough(row.evidence, row.pinned, row.source.first_configs_only, context.request,
                          context.profile);
}

}  // namespace

BatchAnswerer::BatchAnswerer(tuner::Tuner* tuner, const Clock* clock)
    : tuner_(tuner), clock_(clock), ready_(kMaxReadyBytes) {}

uint32_t BatchAnswerer::RulesOf(const std::string& text) {
  MutexLock lock(mutex_);
  // Numbers are not used again, so rows of those that are forgotten are not
  // found any more.
  if (rules_.size() >= kMaxContexts) rules_.clear();
  uint32_t& number = rules_[text];
  if (number == 0) number = ++last_rules_;
  return number;
}

std::shared_ptr<const BatchContext> BatchAnswerer::MakeContext(const std::string& rest) {
  auto context = std::make_shared<BatchContext>();
  context->version = tuner_->EnvironmentsVersion();
  google::protobuf::Arena arena;
  auto* request = google::protobuf::Arena::CreateMessage<v1::BatchGetRequest>(&arena);
  if (!request->ParseFromString(rest)) return nullptr;
  std::vector<Violation> violations;
  std::optional<lookup::LookupRequest> valid = ValidateWithoutProblems(*request, &violations);
  if (!valid.has_value()) return nullptr;
  context->request = *std::move(valid);
  const absl::StatusOr<Environment> environment =
      tuner_->ResolveEnvironment(context->request.environment);
  if (!environment.ok()) return nullptr;
  const std::string text = environment->ToText();
  context->profile = environment->profile;
  context->rules = RulesOf(absl::StrCat(text, "\n", request->constraints().SerializeAsString()));
  context->environment =
      ToProto(FindEnvironment(tuner_->ListEnvironments(), text)).SerializeAsString();
  return context;
}

std::shared_ptr<const BatchContext> BatchAnswerer::ContextOf(const std::string& rest) {
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

std::optional<Batch> BatchAnswerer::Prepare(std::string_view request) {
  std::optional<BatchRequestParts> parts = TakeApart(request);
  if (!parts.has_value() || parts->problems.empty() ||
      parts->problems.size() > size_t{kMaxProblemsPerRequest}) {
    return std::nullopt;
  }
  Batch batch;
  batch.context = ContextOf(parts->rest);
  if (batch.context == nullptr) return std::nullopt;
  batch.rows.resize(parts->problems.size());
  google::protobuf::Arena arena;
  v1::ProblemSpec* spec = nullptr;
  std::vector<Violation> violations;
  int64_t hits = 0;
  absl::Duration saved;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const std::string_view bytes = parts->problems[i];
    auto row = ready_.Find(batch.context->rules, bytes);
    if (row != nullptr && IsHit(*row, *batch.context) && tuner_->StillHolds(row->source)) {
      saved += row->source.elapsed;
      batch.rows[i].ready = std::move(row);
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

Batch BatchAnswerer::Whole(lookup::LookupRequest request) {
  Batch batch;
  batch.context = std::make_shared<BatchContext>();
  batch.rows.resize(request.problems.size());
  batch.missing = std::move(request);
  return batch;
}

void BatchAnswerer::Complete(const lookup::LookupResponse& response, Batch* batch) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<v1::BatchGetResult>(&arena);
  size_t next = 0;
  for (ReplyRow& row : batch->rows) {
    if (row.ready != nullptr) continue;
    const size_t place = next++;
    const lookup::LookupResult& result = response.results[place];
    message->Clear();
    Fill(result, message);
    const auto* answer = std::get_if<lookup::Answer>(&result.outcome);
    const bool kept = batch->context->rules != 0 && answer != nullptr && !answer->fresh &&
                      tuner_->StillHolds(result.source);
    if (!kept) {
      row.whole = message->SerializeAsString();
      continue;
    }
    auto ready = std::make_shared<ReadyRow>();
    message->mutable_answer()->clear_age();
    const std::string answer_bytes = message->answer().SerializeAsString();
    message->clear_answer();
    const size_t head_size = message->ByteSizeLong();
    ready->bytes.reserve(head_size + answer_bytes.size());
    message->AppendToString(&ready->bytes);
    ready->bytes += answer_bytes;
    ready->head_size = head_size;
    ready->source = result.source;
    ready->evidence = answer->evidence;
    ready->pinned = answer->pinned;
    ready_.Put(batch->context->rules, batch->missing_bytes[place], ready);
    row.ready = std::move(ready);
  }
}

std::string BatchAnswerer::EnvironmentOf(const Batch& batch,
                                         const lookup::LookupResponse* response) const {
  if (response == nullptr) return batch.context->environment;
  const std::string text = response->environment.ToText();
  return ToProto(FindEnvironment(tuner_->ListEnvironments(), text)).SerializeAsString();
}

}  // namespace convtune
