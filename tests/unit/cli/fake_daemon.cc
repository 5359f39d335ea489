#include "tests/unit/cli/fake_daemon.h"

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"

namespace convtune::cli {
namespace {

void FillAnswer(v1::Answer* answer) {
  answer->mutable_winner()->set_text("graph:eng34,k2=5");
  answer->mutable_winner()->set_median_us(12.5);
  answer->mutable_winner()->set_q1_us(12.4);
  answer->mutable_winner()->set_q3_us(12.6);
  answer->mutable_winner()->set_workspace_bytes(1 << 20);
  answer->mutable_winner()->set_deterministic(true);
  answer->mutable_winner()->set_status(v1::CANDIDATE_STATUS_TIMED);
  *answer->add_portfolio() = answer->winner();
  v1::Candidate* second = answer->add_portfolio();
  second->set_text("graph:eng1");
  second->set_median_us(20);
  *answer->add_runners_up() = *second;
  answer->set_evidence(v1::EVIDENCE_MEASURED);
  answer->set_origin(v1::ORIGIN_LOCAL);
  answer->set_environment("nvidia-h200");
  answer->set_candidate_count(41);
  answer->set_eligible_count(30);
  answer->set_tuning_id("v1:0123");
  answer->set_persisted(true);
}

}  // namespace

grpc::Status BadRequest(const std::vector<std::pair<std::string, std::string>>& violations) {
  google::rpc::BadRequest bad;
  for (const auto& [field, rule] : violations) {
    auto* violation = bad.add_field_violations();
    violation->set_field(field);
    violation->set_description(rule);
  }
  google::rpc::Status status;
  status.set_code(static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  status.set_message("invalid request");
  status.add_details()->PackFrom(bad);
  return {grpc::StatusCode::INVALID_ARGUMENT, status.message(), status.SerializeAsString()};
}

FakeDaemon::FakeDaemon(grpc::Service* more) {
  info.set_version(CONVTUNE_VERSION);
  info.set_writable(true);
  info.set_state_dir("/var/lib/convtune");
  auto* environment = environments.add_environments();
  environment->set_name("nvidia-h200");
  environment->set_current(true);
  auto* device = devices.add_devices();
  device->set_name("gpu:0");
  device->set_environment("nvidia-h200");
  device->set_state(v1::DEVICE_STATE_READY);
  v1::TuningJob& job = states.emplace_back();
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_persisted(true);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::TuningService::Service*>(this));
  builder.RegisterService(static_cast<v1::MaintenanceService::Service*>(this));
  if (more != nullptr) builder.RegisterService(more);
  server_ = builder.BuildAndStart();
  server_->GetHealthCheckService()->SetServingStatus("liveness", true);
  SetReady(true);
}

FakeDaemon::~FakeDaemon() { server_->Shutdown(); }

void FakeDaemon::SetReady(bool ready) {
  server_->GetHealthCheckService()->SetServingStatus("readiness", ready);
}

grpc::Status FakeDaemon::BatchGet(Context*, const v1::BatchGetRequest* request,
                                  v1::BatchGetResponse* response) {
  {
    MutexLock lock(mutex_);
    ++batch_gets_;
    last_get_ = *request;
  }
  if (!error.ok()) return error;
  std::vector<std::pair<std::string, std::string>> violations;
  for (int i = 0; i < request->problems_size(); ++i) {
    if (!refused.empty() && request->problems(i).text().find(refused) != std::string::npos) {
      violations.emplace_back(absl::StrCat("problems[", i, "].text"), "must be one that is served");
    }
  }
  if (!violations.empty()) return BadRequest(violations);
  response->mutable_environment()->set_name("nvidia-h200");
  response->mutable_environment()->set_text("nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  const google::protobuf::Descriptor& known = *request->GetDescriptor();
  for (int i = 0; lists_fields && i < known.field_count(); ++i) {
    response->add_known_fields(known.field(i)->number());
  }
  for (const v1::ProblemSpec& problem : request->problems()) {
    if (response->results_size() == most_results) break;
    v1::BatchGetResult* result = response->add_results();
    result->set_problem_text(problem.text());
    FillAnswer(result->mutable_answer());
    result->mutable_answer()->set_persisted(persisted);
    if (!answers_banned.ban().empty()) *result->mutable_answer()->mutable_banned() = answers_banned;
    for (const auto& [part, reason] : misses) {
      if (problem.text().find(part) == std::string::npos) continue;
      result->mutable_miss()->set_reason(reason);
      if (request->on_miss() == v1::ON_MISS_ENQUEUE) result->mutable_miss()->set_job("jobs/1");
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::CreateTuningJob(Context*, const v1::CreateTuningJobRequest* request,
                                         v1::TuningJob* response) {
  {
    MutexLock lock(mutex_);
    last_create_ = *request;
  }
  response->set_name("jobs/1");
  return error;
}

grpc::Status FakeDaemon::WatchTuningJob(Context*, const v1::WatchTuningJobRequest*,
                                        grpc::ServerWriter<v1::TuningJob>* writer) {
  if (!error.ok()) return error;
  if (lost_watches > 0) {
    --lost_watches;
    writer->Write(states.front());
    return {grpc::StatusCode::UNAVAILABLE, "the daemon is draining"};
  }
  if (!on_watch) {
    for (const v1::TuningJob& state : states) writer->Write(state);
    return grpc::Status::OK;
  }
  writer->Write(states.front());
  on_watch();
  MutexLock lock(mutex_);
  while (!cancelled_) changed_.Wait(mutex_);
  v1::TuningJob last = states.front();
  last.set_state(v1::JOB_STATE_CANCELLED);
  writer->Write(last);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::CancelTuningJob(Context*, const v1::CancelTuningJobRequest* request,
                                         v1::TuningJob* response) {
  MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.SignalAll();
  response->set_name(request->name());
  response->set_state(v1::JOB_STATE_CANCELLED);
  return error;
}

grpc::Status FakeDaemon::GetTuning(Context*, const v1::GetTuningRequest* request,
                                   v1::Tuning* response) {
  for (const auto& [part, reason] : misses) {
    if (request->problem().text().find(part) != std::string::npos) {
      return {grpc::StatusCode::NOT_FOUND, "no tuning"};
    }
  }
  *response = tuning;
  return error;
}

grpc::Status FakeDaemon::ListTunings(Context*, const v1::ListTuningsRequest* request,
                                     v1::ListTuningsResponse* response) {
  const size_t first = request->page_token().empty() ? 0 : std::stoul(request->page_token());
  const size_t last = std::min(first + 2, tunings.size());
  for (size_t i = first; i < last; ++i) *response->add_tunings() = tunings[i];
  if (last < tunings.size()) response->set_next_page_token(absl::StrCat(last));
  return error;
}

grpc::Status FakeDaemon::CreateBan(Context*, const v1::CreateBanRequest* request,
                                   v1::CreateBanResponse* response) {
  *response = banned;
  *response->mutable_ban() = request->ban();
  bans_asked.push_back(*request);
  if (!request->dry_run()) {
    response->mutable_ban()->set_name(absl::StrCat("bans/", bans_asked.size()));
  }
  return error;
}

grpc::Status FakeDaemon::ListEnvironments(Context*, const v1::ListEnvironmentsRequest* request,
                                          v1::ListEnvironmentsResponse* response) {
  const int first = request->page_token().empty() ? 0 : std::stoi(request->page_token());
  if (first < environments.environments_size()) {
    *response->add_environments() = environments.environments(first);
  }
  if (first + 1 < environments.environments_size()) {
    response->set_next_page_token(absl::StrCat(first + 1));
  }
  return error;
}

TestIo::TestIo(const RunOptions& options)
    : in(options.in),
      io{in,
         out,
         err,
         options.terminal,
         options.terminal,
         options.columns,
         [env = options.env](const std::string& name) -> std::optional<std::string> {
           const auto it = env.find(name);
           if (it == env.end()) return std::nullopt;
           return it->second;
         }} {}

RunResult RunProgram(const std::vector<std::string>& arguments, const RunOptions& options) {
  TestIo test(options);
  const int code = commands::RunCli(arguments, test.io);
  return {code, test.out.str(), test.err.str()};
}

std::string ProblemText(int channels) {
  return absl::StrCat("fwd,x=1x", channels, "x8x8,w=8x", channels, "x3x3,pad=1,nhwc,f16");
}

}  // namespace convtune::cli
