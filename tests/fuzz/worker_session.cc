// The daemon's side of the worker protocol: a whole tuning with a worker that
// says anything. What comes of it is a tuning that breaks no rule, or an error.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/time/clock.h"
#include "db/bundle/bundle_codec.h"
#include "proto/base/cancel_token.h"
#include "proto/base/framing.h"
#include "proto/worker_client/worker_client.h"
#include "server/tuning/tuning_runner.h"
#include "tests/fuzz/fuzz.h"

using convtune::fuzz::Require;

namespace {

// What the worker is going to say, and its end of the socket.
std::string g_said;
convtune::UniqueFd g_theirs;

// Replies, each with two bytes for its length, as frames.
std::string Frames(const uint8_t* data, size_t size) {
  std::string frames;
  while (size >= 2) {
    const size_t length = std::min<size_t>(data[0] | data[1] << 8, size - 2);
    for (int shift = 0; shift < 32; shift += 8) frames += static_cast<char>(length >> shift);
    frames.append(reinterpret_cast<const char*>(data + 2), length);
    data += 2 + length;
    size -= 2 + length;
  }
  return frames;
}

std::string Hello(uint8_t flags) {
  convtune::worker::v1::Reply reply;
  reply.set_last(true);
  auto* hello = reply.mutable_hello();
  hello->set_version(CONVTUNE_VERSION);
  hello->set_has_gpu((flags & 8) == 0);
  const std::string text = reply.SerializeAsString();
  return std::string{static_cast<char>(text.size()), 0, 0, 0} + text;
}

}  // namespace

// In place of the daemon's own: no process, and a socket that is filled.
namespace convtune {

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    std::vector<std::string> /*argv*/, const std::string& /*library_path*/, bool /*prints*/,
    int /*errors*/) {
  int fds[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  g_theirs = UniqueFd(fds[1]);
  Require(write(fds[1], g_said.data(), g_said.size()) == static_cast<ssize_t>(g_said.size()));
  shutdown(fds[1], SHUT_WR);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(1, UniqueFd(fds[0])));
}
WorkerProcess::~WorkerProcess() = default;
std::optional<WorkerExit> WorkerProcess::Poll() { return std::nullopt; }
WorkerExit WorkerProcess::Wait() { return {"exit status 0", killed_by_us_}; }
WorkerExit WorkerProcess::Kill() { return {"killed", false}; }

}  // namespace convtune

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // What does not fit a socket's buffer would block this one thread.
  if (size == 0 || size > 16 * 1024) return 0;
  g_said = Hello(data[0]);
  g_said += (data[0] & 1) != 0 ? convtune::fuzz::ToString(data + 1, size - 1)
                               : Frames(data + 1, size - 1);
  const auto cancel = convtune::CancelToken::Create();
  auto client = convtune::WorkerClient::Start(
      {.worker_argv = {"worker"}, .hang_timeout = absl::Seconds(5), .cancel = cancel->get()});
  Require(client.ok());
  static const convtune::SystemClock clock;
  static const convtune::Environment environment =
      *convtune::Environment::Parse("nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  static const convtune::ConvProblem problem =
      *convtune::ConvProblem::Parse("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16");
  convtune::tuning::RunnerInput input{
      .spec = {.problem = problem, .key = {problem.ToText(), environment.ToText()}, .options = {}},
      .provenance = {"570.124", "12.8", "GPU-1", "node-a", int64_t{141} << 30},
      .quarantined = {},
      .left_out = {},
      .clock = &clock,
      .progress = {}};
  input.spec.options.time_budget = absl::Seconds(5);
  const convtune::tuning::RunnerOutput output = convtune::tuning::RunTuning(input, client->get());
  if (!output.tuning.ok()) {
    Require(!output.tuning.status().message().empty());
    return 0;
  }
  convtune::v1::Tuning row = convtune::db::bundle::ToBundleTuning(*output.tuning, 1, true);
  convtune::db::bundle::BundleEnvironmentRow where;
  where.text = environment.ToText();
  where.environment = environment;
  where.provenance = input.provenance;
  Require(convtune::db::bundle::FromBundleTuning(row, where, clock.Now() + absl::Minutes(1)).ok());
  return 0;
}
