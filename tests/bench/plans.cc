// How long a process needs until it holds the plans of a model, for a GPU that
// a profile stands in for; see README.md. One mode for each process:
//   known    finalises "problem<TAB>candidate" lines: what no search can beat
//   resolve  asks a daemon for the problems' winners, and finalises those
//   all      lists and finalises what a search without a memory would
//   tune     lists and builds everything in one bare loop, then as the worker
//            does, and prints both as JSON
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/include/convtune/resolver.h"
#include "proto/base/status_macros.h"
#include "server/worker/backend.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/device/device_profile.h"
#include "server/worker/session.h"
#include "tests/bench/figure.h"

namespace convtune::bench {
namespace {

// Finalises plans for a profile, and keeps them.
class Plans {
 public:
  static absl::StatusOr<std::unique_ptr<Plans>> Create(
      const worker::device::DeviceProfile& profile) {
    auto plans = std::make_unique<Plans>();
    ASSIGN_OR_RETURN(plans->properties_,
                     worker::cudnn::Descriptor::Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
    plans->properties_.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, profile.properties_json);
    RETURN_IF_ERROR(plans->properties_.Finalize());
    return plans;
  }

  absl::Status Add(const std::string& problem_text, const EngineConfig& config) {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(problem_text));
    worker::cudnn::CudnnTarget target;
    target.device_properties = &properties_;
    ASSIGN_OR_RETURN(worker::cudnn::OperationGraph graph,
                     worker::cudnn::OperationGraph::Create(problem, target));
    ASSIGN_OR_RETURN(worker::cudnn::ExecutionPlan plan,
                     worker::cudnn::ExecutionPlan::Create(graph, config));
    graphs_.push_back(std::move(graph));
    plans_.push_back(std::move(plan));
    return absl::OkStatus();
  }

 private:
  worker::cudnn::Descriptor properties_;
  std::vector<worker::cudnn::OperationGraph> graphs_;
  std::vector<worker::cudnn::ExecutionPlan> plans_;
};

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) {
      lines.push_back(line);
    }
  }
  if (lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read, or is empty"));
  }
  return lines;
}

absl::Status Known(const worker::device::DeviceProfile& profile,
                   const std::vector<std::string>& lines) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Plans> plans, Plans::Create(profile));
  for (const std::string& line : lines) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) {
      return absl::InvalidArgumentError("known: lines must be problem, tab, candidate");
    }
    ASSIGN_OR_RETURN(const CandidateId id, ParseCandidateId(line.substr(tab + 1)));
    RETURN_IF_ERROR(plans->Add(line.substr(0, tab), std::get<EngineConfig>(id)));
  }
  return absl::OkStatus();
}

absl::Status Resolve(const worker::device::DeviceProfile& profile,
                     const std::vector<std::string>& lines, const std::string& address) {
  client::Options options;
  options.address = address;
  options.use_snapshot = false;
  client::Resolver resolver(options);
  std::vector<client::Query> queries;
  for (const std::string& line : lines) {
    queries.push_back({line});
  }
  // As a server does: cuDNN loads its libraries meanwhile.
  std::future<std::vector<client::Result>> asked = std::async(
      std::launch::async, [&] { return resolver.Resolve(queries, std::chrono::seconds(10)); });
  ASSIGN_OR_RETURN(const std::unique_ptr<Plans> plans, Plans::Create(profile));
  for (const client::Result& result : asked.get()) {
    if (!result.found) {
      return absl::NotFoundError(absl::StrCat(result.problem, ": ", result.message));
    }
    RETURN_IF_ERROR(
        plans->Add(result.problem, EngineConfig{result.winner.engine_index, result.winner.knobs}));
  }
  return absl::OkStatus();
}

struct Work {
  double seconds = 0;
  int candidates = 0;
  int plans = 0;
};

absl::StatusOr<Work> BareLoop(worker::Backend* backend, const std::vector<std::string>& lines) {
  Work work;
  const SteadyTime start = SteadyTime::Now();
  for (const std::string& line : lines) {
    ASSIGN_OR_RETURN(const ConvProblem parsed, ConvProblem::Parse(line));
    ASSIGN_OR_RETURN(const std::unique_ptr<worker::BackendProblem> problem,
                     backend->Open(parsed, 0));
    worker::v1::OpenProblem request;
    request.set_listing(worker::v1::LISTING_HEURISTICS);
    request.set_graph_api(true);
    std::vector<CandidateId> ids;
    problem->List(request, SteadyTime::InfiniteFuture(), [&ids](const Candidate& candidate) {
      ids.push_back(candidate.id);
      return true;
    });
    for (const CandidateId& id : ids) {
      work.plans += problem->Prepare(id).ok() ? 1 : 0;
    }
    work.candidates += static_cast<int>(ids.size());
  }
  work.seconds = absl::ToDoubleSeconds(SteadyTime::Now() - start);
  return work;
}

// The requests that the daemon sends, to a session without a process between.
absl::StatusOr<Work> AsTheWorker(worker::Backend* backend, const std::vector<std::string>& lines) {
  worker::Session session(backend);
  Work work;
  worker::v1::Request build;
  const auto on_reply = [&](const worker::v1::Reply& reply) {
    if (reply.has_listed()) {
      build.add_indexes(reply.index());
    }
    work.plans += reply.has_prepared() && reply.prepared().ok() ? 1 : 0;
    return absl::OkStatus();
  };
  worker::v1::Request hello;
  hello.mutable_hello()->set_version(CONVTUNE_VERSION);
  RETURN_IF_ERROR(session.Handle(hello, on_reply));
  const SteadyTime start = SteadyTime::Now();
  for (const std::string& line : lines) {
    worker::v1::Request open;
    open.mutable_open_problem()->set_problem_text(line);
    open.mutable_open_problem()->set_listing(worker::v1::LISTING_HEURISTICS);
    open.mutable_open_problem()->set_graph_api(true);
    build.Clear();
    build.mutable_prepare();
    RETURN_IF_ERROR(session.Handle(open, on_reply));
    work.candidates += build.indexes_size();
    RETURN_IF_ERROR(session.Handle(build, on_reply));
    worker::v1::Request close;
    close.mutable_close_problem();
    RETURN_IF_ERROR(session.Handle(close, on_reply));
  }
  work.seconds = absl::ToDoubleSeconds(SteadyTime::Now() - start);
  return work;
}

absl::Status Tune(worker::Backend* backend, const std::vector<std::string>& lines, int repeats) {
  // cuDNN loads its libraries at the first calls, whoever makes them.
  RETURN_IF_ERROR(BareLoop(backend, lines).status());
  std::vector<double> bare, ours;
  for (int i = 0; i < repeats; ++i) {
    ASSIGN_OR_RETURN(const Work loop, BareLoop(backend, lines));
    ASSIGN_OR_RETURN(const Work session, AsTheWorker(backend, lines));
    if (loop.candidates != session.candidates || loop.plans != session.plans) {
      return absl::InternalError(absl::StrCat("the loop built ", loop.plans, " plans of ",
                                              loop.candidates, ", the worker ", session.plans,
                                              " of ", session.candidates));
    }
    bare.push_back(loop.seconds);
    ours.push_back(session.seconds);
  }
  Print("tune_s", absl::StrCat("\"problems\": ", lines.size()), Median(ours), Median(bare),
        Median(ours) / Median(bare));
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  std::string profile_path, mode, path, address;
  int repeats = 9;
  CLI::App app("time until a process holds a model's plans");
  app.add_option("--profile", profile_path)->required();
  app.add_option("--mode", mode)
      ->required()
      ->check(CLI::IsMember({"known", "resolve", "all", "tune"}));
  app.add_option("--problems", path, "lines of problems; with known: problem, tab, candidate")
      ->required();
  app.add_option("--address", address);
  app.add_option("--repeats", repeats)->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    app.exit(e);
    return absl::InvalidArgumentError(e.what());
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLines(path));
  ASSIGN_OR_RETURN(const worker::device::DeviceProfile profile,
                   worker::device::DeviceProfile::Load(profile_path));
  if (mode == "known") {
    return Known(profile, lines);
  }
  if (mode == "resolve") {
    return Resolve(profile, lines, address);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<worker::Backend> backend,
                   worker::MakeDevicelessBackend(profile));
  return mode == "all" ? BareLoop(backend.get(), lines).status()
                       : Tune(backend.get(), lines, repeats);
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) {
  const absl::Status status = convtune::bench::Run(argc, argv);
  if (!status.ok()) {
    std::cerr << "convtune-bench-plans: " << status.message() << "\n";
  }
  return status.ok() ? 0 : 1;
}
