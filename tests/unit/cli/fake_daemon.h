// A daemon that answers from a script, in this process, over a unix socket; and
// a way to run the program against it.
#pragma once

#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/output/io.h"
#include "convtune/v1/maintenance_service.grpc.pb.h"
#include "convtune/v1/tuning_service.grpc.pb.h"
#include "proto/base/mutex.h"
#include "tests/unit/temp_dir.h"

namespace convtune::cli {

// INVALID_ARGUMENT with google.rpc.BadRequest.
grpc::Status BadRequest(const std::vector<std::pair<std::string, std::string>>& violations);

// Knows any problem but those that a test takes away. Thread-safe but for the
// public members, which are set before the program runs.
class FakeDaemon final : public v1::TuningService::Service, public v1::MaintenanceService::Service {
 public:
  // Starts to listen; has `more`, too, unless it is nullptr.
  explicit FakeDaemon(grpc::Service* more = nullptr);
  ~FakeDaemon() override;

  std::string address() const { return "unix:" + folder_.path("s"); }
  const std::string& folder() const { return folder_.path(); }
  int batch_gets() const {
    MutexLock lock(mutex_);
    return batch_gets_;
  }
  v1::BatchGetRequest last_get() const {
    MutexLock lock(mutex_);
    return last_get_;
  }
  v1::CreateTuningJobRequest last_create() const {
    MutexLock lock(mutex_);
    return last_create_;
  }

  // A part of the text form of problems that are misses, with the reason.
  std::map<std::string, v1::MissReason> misses;
  // A part of the text form of problems that are refused.
  std::string refused;
  // Said by every answer.
  bool persisted = true;
  // As one whose replies have no room for more.
  int most_results = std::numeric_limits<int>::max();
  // False: as a daemon that was made before replies had known_fields.
  bool lists_fields = false;
  // What every call answers, if not OK.
  grpc::Status error;
  v1::ServerInfo info;
  v1::ListDevicesResponse devices;
  v1::ListEnvironmentsResponse environments;  // served one a page
  v1::Tuning tuning;
  std::vector<v1::Tuning> tunings;    // served two a page
  std::vector<v1::TuningJob> states;  // of the one job, in order; at first it has succeeded
  std::function<void()> on_watch;     // called after the first state; then waits for a cancellation
  int lost_watches = 0;               // that many end as those of a daemon that stops
  v1::PinRecord pinned;               // the only pin
  v1::CreateBanResponse banned;       // but for its ban, which is what was asked for
  std::vector<v1::CreateBanRequest> bans_asked;
  v1::ListBansResponse bans;
  std::string deleted_ban;
  int64_t deleted_fleet_ban = 0;
  v1::BannedCandidate answers_banned;  // said by every answer, if it names a ban
  int deleted = 0;
  bool sound = true;

  void SetReady(bool ready);

 private:
  using Context = grpc::ServerContext;
  grpc::Status BatchGet(Context*, const v1::BatchGetRequest*, v1::BatchGetResponse*) override;
  grpc::Status CreateTuningJob(Context*, const v1::CreateTuningJobRequest*,
                               v1::TuningJob*) override;
  grpc::Status GetTuningJob(Context*, const v1::GetTuningJobRequest* request,
                            v1::TuningJob* response) override {
    if (request->name() != "jobs/1") return {grpc::StatusCode::NOT_FOUND, "no such job"};
    *response = states.back();
    return error;
  }
  grpc::Status ListTuningJobs(Context*, const v1::ListTuningJobsRequest*,
                              v1::ListTuningJobsResponse* response) override {
    if (!states.empty()) *response->add_jobs() = states.back();
    return error;
  }
  grpc::Status WatchTuningJob(Context*, const v1::WatchTuningJobRequest*,
                              grpc::ServerWriter<v1::TuningJob>*) override;
  grpc::Status CancelTuningJob(Context*, const v1::CancelTuningJobRequest*,
                               v1::TuningJob*) override;
  grpc::Status GetTuning(Context*, const v1::GetTuningRequest*, v1::Tuning*) override;
  grpc::Status ListTunings(Context*, const v1::ListTuningsRequest*,
                           v1::ListTuningsResponse*) override;
  grpc::Status DeleteTuning(Context*, const v1::DeleteTuningRequest*,
                            v1::DeleteTuningResponse* response) override {
    response->set_deleted_count(deleted);
    return error;
  }
  grpc::Status Pin(Context*, const v1::PinRequest* request, v1::PinRecord* response) override {
    response->set_candidate(request->candidate());
    response->set_reason(request->reason());
    response->set_environment("nvidia-h200");
    return error;
  }
  grpc::Status Unpin(Context*, const v1::UnpinRequest*, v1::UnpinResponse*) override {
    return error;
  }
  grpc::Status ListPins(Context*, const v1::ListPinsRequest*,
                        v1::ListPinsResponse* response) override {
    *response->add_pins() = pinned;
    return error;
  }
  grpc::Status CreateBan(Context*, const v1::CreateBanRequest*, v1::CreateBanResponse*) override;
  grpc::Status DeleteBan(Context*, const v1::DeleteBanRequest* request,
                         v1::DeleteBanResponse*) override {
    deleted_ban = request->name();
    deleted_fleet_ban = request->fleet_ban();
    return error;
  }
  grpc::Status ListBans(Context*, const v1::ListBansRequest*,
                        v1::ListBansResponse* response) override {
    *response = bans;
    return error;
  }
  grpc::Status ListEnvironments(Context*, const v1::ListEnvironmentsRequest*,
                                v1::ListEnvironmentsResponse*) override;
  grpc::Status ListDevices(Context*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    *response = devices;
    return error;
  }
  grpc::Status GetServerInfo(Context*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    *response = info;
    return error;
  }
  grpc::Status CheckDatabase(Context*, const v1::CheckDatabaseRequest*,
                             v1::CheckDatabaseResponse* response) override {
    response->set_ok(sound);
    if (!sound) response->add_findings("tuning 3: checksum differs");
    return error;
  }

  TempDir folder_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  int batch_gets_ GUARDED_BY(mutex_) = 0;
  v1::BatchGetRequest last_get_ GUARDED_BY(mutex_);
  v1::CreateTuningJobRequest last_create_ GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

// What one run of the program gave.
struct RunResult {
  int code = 0;
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string in = {};
  bool terminal = false;
  int columns = 120;
  std::map<std::string, std::string> env = {};
};

// What a command reads and writes in a test.
class TestIo {
 public:
  explicit TestIo(const RunOptions& options = {});

  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  output::Io io;
};

RunResult RunProgram(const std::vector<std::string>& arguments, const RunOptions& options = {});

// The program against a daemon of its own.
class DaemonTest : public testing::Test {
 protected:
  RunResult Run(std::vector<std::string> arguments, const RunOptions& options = {}) const {
    arguments.insert(arguments.end(), {"--address", daemon_.address()});
    return RunProgram(arguments, options);
  }

  FakeDaemon daemon_;
};

// A short valid problem with `channels` channels.
std::string ProblemText(int channels);

}  // namespace convtune::cli
