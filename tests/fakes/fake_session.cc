#include "tests/fakes/fake_session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

using Traits = FakeTraits;

Traits TraitsOf(uint64_t seed, const std::string& problem, int index) {
  std::mt19937_64 random(seed ^ Checksum64(absl::StrCat(problem, "#", index)));
  return {20.0 + static_cast<double>(random() % 1000) / 10,
          index % 3 == 0 ? 0 : static_cast<int64_t>(random() % 64) * kMiB, random() % 2 == 0,
          index % 5 == 4};
}

// Legacy algorithms are as fast as each other but for the stock choice, which
// alone needs workspace.
Traits LegacyTraitsOf(bool is_stock, int slower_us) {
  if (!is_stock) return {40.0, 0, false, false};
  return {40.0 + slower_us, kMiB, false, false};
}

// Each way of launching and feeding has its own times.
double OffsetOf(const worker::v1::Measure& request) {
  const double cold = request.cache_state() == v1::CACHE_STATE_COLD  ? 10
                      : request.cache_state() == v1::CACHE_STATE_HOT ? -5
                                                                     : 0;
  return cold - (request.launch() == v1::LAUNCH_MODE_GRAPH_CAPTURE ? 2 : 0);
}

// About what a sound candidate's result is off by, in units of the largest value.
double RoundingOf(const std::string& problem_text) {
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(problem_text);
  if (!problem.ok()) return 1e-4;
  switch (problem->output_type()) {
    case DataType::kF64:
      return 1e-15;
    case DataType::kI32:
      return 1e-9;
    case DataType::kF32:
      return 1e-7;
    default:
      return 1e-4;
  }
}

}  // namespace

std::string FakeEnvironmentText(const std::string& device) {
  const std::string model = absl::StartsWith(device, "profile:") ? device : "nvidia-h200";
  return absl::StrCat(model, ",cc=9.0,sms=132,cudnn=9.19.0,lib=full");
}

FakeTraits FakeSession::TraitsOfListed(int index) const {
  if (index < configs_) return TraitsOf(static_cast<uint64_t>(script_.seed()), problem_, index);
  return LegacyTraitsOf(index - configs_ == script_.legacy() - 1, script_.legacy_slower_us());
}

void FakeSession::Log(const std::string& kind) const {
  if (script_.log().empty()) return;
  const std::string line = absl::StrCat(kind, " ", problem_, "\n");
  const int fd = open(script_.log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
}

void FakeSession::MaybeFault(const std::string& where, int index) {
  if (script_.fault().empty() || script_.where() != where) return;
  const bool of_index =
      where == "prepare" || where == "check" || where == "measure" || where == "self_check";
  if (of_index && script_.index() != index) return;
  if (!script_.problem().empty() && script_.problem() != problem_) return;
  if (!script_.once().empty()) {
    const int fd = open(script_.once().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;
    close(fd);
  }
  if (script_.fault() == "segv") {
    // What a sanitizer would put in the signal's place.
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  } else if (script_.fault() == "abort") {
    signal(SIGABRT, SIG_DFL);
    std::abort();
  } else if (script_.fault() == "killed") {
    raise(SIGKILL);
  } else if (script_.fault() == "exit") {
    _exit(3);
  } else if (script_.fault() == "slow" || script_.fault() == "slow_segv") {
    absl::SleepFor(absl::Milliseconds(script_.slow_ms()));
    if (script_.fault() == "slow") return;
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  } else if (script_.fault() == "busy") {
    const SteadyTime busy = SteadyTime::Now() + absl::Milliseconds(script_.slow_ms());
    while (SteadyTime::Now() < busy) {
    }
  } else if (script_.fault() == "hang") {
    while (true) pause();
  } else if (script_.fault() == "garbage") {
    [[maybe_unused]] const absl::Status sent = WriteFrame(fd_, "\xff\xff\xff no message");
    while (true) pause();
  } else if (script_.fault() == "stubborn") {
    for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
      signal(signal_number, SIG_IGN);
    }
    close(fd_);
    while (true) pause();
  } else if (script_.fault() == "illegal") {
    // As a GPU's sticky error does: the call fails, and so does the process.
    [[maybe_unused]] const absl::Status sent =
        Finish(false, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered");
    _exit(1);
  } else if (script_.fault() == "lie") {
    worker::v1::Reply reply;
    reply.set_index(1'000'000);
    reply.mutable_sample()->set_round(-5);
    reply.mutable_sample()->set_gpu_us(-1);
    [[maybe_unused]] const absl::Status sent = Send(reply);
  } else if (script_.fault() == "memory") {
    const rlimit limit{rlim_t{256} << 20, rlim_t{256} << 20};
    setrlimit(RLIMIT_AS, &limit);
    std::vector<std::string> all;
    while (true) all.emplace_back(size_t{1} << 20, 'x');
  } else if (script_.fault() == "flood") {
    while (Touch(index).ok()) {
    }
    _exit(0);
  }
}

absl::StatusOr<uint32_t> FakeSession::CheckSelf(uint32_t lost_steps) {
  Log("self_check");
  for (int bit = 1; bit < 32; ++bit) {
    const uint32_t step = uint32_t{1} << bit;
    // A worker that does not heed what it was told tries a lost step again.
    if ((step & SelfCheckSteps() & (script_.heedless() != 0 ? ~0U : ~lost_steps)) == 0) continue;
    worker::v1::Reply reply;
    reply.set_self_checking(step);
    RETURN_IF_ERROR(Send(reply));
    MaybeFault("self_check", bit);
  }
  return static_cast<uint32_t>(script_.self_check()) | lost_steps | 1U;
}

absl::Status FakeSession::Hello(const worker::v1::Hello& request) {
  absl::SleepFor(absl::Milliseconds(script_.start_delay_ms()));
  const SteadyTime busy = SteadyTime::Now() + absl::Milliseconds(script_.start_work_ms());
  while (SteadyTime::Now() < busy) {
  }
  Log("hello");
  worker::v1::Reply starting;
  starting.set_starting("load the worker's kernels");
  RETURN_IF_ERROR(Send(starting));
  MaybeFault("start", 0);
  v1::SelfCheck self_check = request.self_check();
  const bool checks = script_.self_check() >= 0;
  if (checks && !request.has_self_check()) {
    ASSIGN_OR_RETURN(const uint32_t mask, CheckSelf(request.lost_steps()));
    self_check = ToProto(SelfCheck{mask, ""});
    self_check.set_details("as the script says");
    if (!script_.instrument().empty()) self_check.add_failed(script_.instrument());
  }
  worker::v1::Reply reply;
  reply.set_last(true);
  worker::v1::HelloReply* hello = reply.mutable_hello();
  hello->set_version(script_.has_version() ? script_.version() : CONVTUNE_VERSION);
  hello->set_environment_text(script_.environment());
  hello->set_has_gpu(!absl::StartsWith(script_.environment(), "profile:"));
  if (checks && hello->has_gpu()) *hello->mutable_self_check() = self_check;
  hello->set_checker_version(script_.checker_version());
  return Send(reply);
}

absl::Status FakeSession::Open(const worker::v1::OpenProblem& request) {
  problem_ = request.problem_text();
  listing_ = request.listing();
  Log("open");
  MaybeFault("listing", 0);
  if (request.legacy_api()) Log("legacy_listing");
  if (request.legacy_api()) MaybeFault("legacy_listing", 0);
  absl::SleepFor(absl::Milliseconds(script_.listing_delay_ms()));
  if (script_.refused() != 0) return Finish(false, "the script refuses every problem");
  configs_ = request.graph_api() ? script_.candidates() : 0;
  listed_ = configs_ + (request.legacy_api() ? script_.legacy() : 0);
  if (request.max_candidates() > 0) listed_ = std::min(listed_, request.max_candidates());
  SetListed(static_cast<size_t>(listed_));
  for (int i = 0; i < listed_; ++i) {
    const Traits traits = TraitsOfListed(i);
    worker::v1::Reply reply;
    Candidate listed;
    if (i >= configs_) {
      const int algorithm = i - configs_;
      listed.id = LegacyAlgorithm{algorithm, 0};
      listed.heuristic_rank = script_.legacy() - 1 - algorithm;
      listed.workspace_bytes = traits.workspace;
    } else {
      listed.id = EngineConfig{i, {{2, i % 4}}};
      listed.heuristic_rank = i;
      const bool differs =
          !script_.disagree().empty() && absl::StrContains(problem_, script_.disagree());
      listed.places.mode_a = static_cast<int16_t>(i + 1);
      listed.places.mode_b = static_cast<int16_t>(differs ? configs_ - i : i + 1);
      if (script_.split_modes() != 0) {
        if (i == 1 && listing_ == worker::v1::LISTING_FIRST_CONFIGS) continue;
        listed.places.mode_a = i == 0 ? 1 : 0;
        listed.places.mode_b = i == 1 ? 1 : 0;
        listed.places.fallback = static_cast<int16_t>(i > 1 ? i - 1 : 0);
      }
      if (traits.tensor_core) listed.numerical_notes |= NoteBit(NumericalNote::kTensorCore);
      if (traits.nondeterministic) {
        listed.numerical_notes |= NoteBit(NumericalNote::kNondeterministic);
      }
      const auto add = [&listed](bool has, BehaviorNote note) {
        if (has) listed.behavior_notes |= NoteBit(note);
      };
      add(i % 2 == 0, BehaviorNote::kSupportsCudaGraphNativeApi);
      add(script_.uses_nvrtc() != 0, BehaviorNote::kRuntimeCompilation);
      add(script_.uses_cublaslt() != 0, BehaviorNote::kCublasLtDependency);
    }
    reply.set_index(i);
    Fill(listed, /*with_samples=*/false, reply.mutable_listed());
    RETURN_IF_ERROR(Send(reply));
  }
  worker::v1::Reply last;
  last.set_last(true);
  last.mutable_outcome()->set_ok(true);
  last.mutable_outcome()->set_find_left_out(script_.find_left_out() != 0);
  return Send(last);
}

void FakeSession::Prepare(int index, worker::v1::Prepared* prepared) {
  MaybeFault("prepare", index);
  absl::SleepFor(absl::Milliseconds(script_.prepare_delay_ms()));
  prepared->set_workspace_bytes(TraitsOfListed(index).workspace);
  prepared->set_ok((index >= configs_ || index < script_.candidates() - script_.unsupported()) &&
                   (script_.split_modes() == 0 || index > 0));
  if (!prepared->ok()) prepared->set_error_message("CUDNN_STATUS_NOT_SUPPORTED");
}

void FakeSession::FillConditions(v1::Conditions* conditions) {
  const bool busy =
      script_.other_processes() > 0 && (script_.busy_looks() == 0 || looks_ < script_.busy_looks());
  ++looks_;
  Fill(Conditions{.known = true,
                  .other_processes = busy ? script_.other_processes() : 0,
                  .clock_reasons = static_cast<uint32_t>(script_.clock_reasons()),
                  .temperature_celsius = 50,
                  .compute_mode = ComputeMode::kDefault,
                  .retried_runs = script_.retried_runs(),
                  .unblocked = script_.unblocked()},
       conditions);
}

void FakeSession::Check(int index, worker::v1::Checked* checked) {
  MaybeFault("check", index);
  absl::SleepFor(std::min(absl::Milliseconds(script_.check_delay_ms()), end_ - SteadyTime::Now()));
  const bool wrong = script_.wrong() == index || script_.wrong() == -2 ||
                     (script_.wrong_from() >= 0 && index >= script_.wrong_from());
  checked->set_error(wrong ? 1.0 : RoundingOf(problem_) * (index + 1));
  checked->set_magnitude(2);
  checked->set_nonfinite(script_.nonfinite() == index ? 3 : 0);
  if (script_.overwrites() == index) checked->set_out_of_bounds("output: 4 bytes behind its end");
  checked->set_capture(index % 2 == 0 ? v1::CAPTURE_SUPPORT_YES : v1::CAPTURE_SUPPORT_NO);
  checked->set_gpu_us(TraitsOfListed(index).base_us + 10);
  checked->set_host_us(script_.host_us());
  if (script_.hopeless() == index) {
    checked->set_hopeless(true);
    checked->set_gpu_us(90'000);
    checked->clear_capture();
  }
  if (script_.self_check() >= 0 &&
      (static_cast<uint32_t>(script_.self_check()) & MaskOf(SelfCheckBit::kCaptures)) != 0) {
    checked->clear_capture();
  }
}

void FakeSession::OnRound() {
  absl::SleepFor(
      std::min(absl::Milliseconds(script_.measure_delay_ms()), end_ - SteadyTime::Now()));
}

void FakeSession::Run(int index, const worker::v1::Measure& how, worker::v1::Sample* sample) {
  MaybeFault("measure", index);
  std::mt19937_64 random(static_cast<uint64_t>(script_.seed() + sample->round() * 1000 + index));
  const bool can_be_blocked = script_.unblocked_index() >= 0 && script_.unblocked_index() != index;
  const bool blocked =
      can_be_blocked || script_.unblocked_from() < 0 || sample->round() < script_.unblocked_from();
  sample->set_gpu_us(TraitsOfListed(index).base_us + OffsetOf(how) + (blocked ? 0 : 1000) +
                     static_cast<double>(random() % 100) / 200);
  sample->set_blocked(blocked);
  const bool slow = script_.slow_host() < 0 || script_.slow_host() == index;
  sample->set_host_us(slow ? script_.host_us() : 0);
  sample->set_sm_clock_mhz(1755);
}

}  // namespace convtune
