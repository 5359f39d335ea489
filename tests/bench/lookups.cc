// BatchGet against a server that only reads the request and sends a ready
// reply: throughput and latency, in alternating slices of one run. Prints one
// JSON object per line.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "tests/bench/figure.h"
#include "tests/bench/load.h"
#include "tests/bench/ready_reply_server.h"

namespace convtune::bench {
namespace {

struct Args {
  std::string daemon;
  std::string baseline;
  std::string problems;
  std::string serve;
  std::string reply;
  int batch = 1;
  int rounds = 5;
  double slice_s = 0.5;
  std::vector<int> clients = {1, 4, 16, 64};
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (buffer.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  return bytes;
}

// The request for the first `batch` problems of the file; empty if it has
// fewer.
std::string RequestOf(const Args& args) {
  v1::BatchGetRequest request;
  std::ifstream in(args.problems);
  std::string line;
  while (request.problems_size() < args.batch && std::getline(in, line)) {
    const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(line);
    if (!problem.ok()) {
      std::fprintf(stderr, "%s\n", problem.status().ToString().c_str());
      return "";
    }
    *request.add_problems()->mutable_problem() = problem->ToProto();
  }
  return request.problems_size() == args.batch ? request.SerializeAsString() : "";
}

// Writes the daemon's reply to args.reply, for the baseline to serve. Every
// problem must be answered.
int FetchReply(const Args& args, const std::string& request) {
  const grpc::ByteBuffer reply = CallOnce(Connect(args.daemon), kBatchGet, ToBuffer(request));
  const std::string bytes = ToBytes(reply);
  v1::BatchGetResponse response;
  if (!response.ParseFromString(bytes)) return 1;
  for (const auto& result : response.results()) {
    if (!result.has_answer()) {
      std::fprintf(stderr, "a problem has no answer: the figure would not be of hits\n");
      return 1;
    }
  }
  std::ofstream(args.reply, std::ios::binary) << bytes;
  return 0;
}

int Compare(const Args& args, const std::string& request_bytes) {
  const grpc::ByteBuffer request = ToBuffer(request_bytes);
  const std::shared_ptr<grpc::Channel> channels[] = {Connect(args.daemon), Connect(args.baseline)};
  const absl::Duration slice = absl::Seconds(args.slice_s);
  for (const int clients : args.clients) {
    std::vector<double> rate[2], p50[2], p99[2], rates, p50s, p99s;
    for (int round = -1; round < args.rounds; ++round) {
      LoadResult results[2];
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + round + 1) % 2;
        results[which] =
            RunLoad(channels[which], kBatchGet, request, clients, round < 0 ? slice / 4 : slice);
      }
      if (round < 0) continue;  // warm-up
      for (int which = 0; which < 2; ++which) {
        rate[which].push_back(results[which].calls_per_second);
        p50[which].push_back(results[which].p50_us);
        p99[which].push_back(results[which].p99_us);
      }
      rates.push_back(results[0].calls_per_second / results[1].calls_per_second);
      p50s.push_back(results[0].p50_us / results[1].p50_us);
      p99s.push_back(results[0].p99_us / results[1].p99_us);
    }
    const std::string at = absl::StrCat("\"batch\": ", args.batch, ", \"clients\": ", clients);
    const auto line = [&](const char* figure, const std::vector<double>* values,
                          const std::vector<double>& ratios) {
      Print(figure, at, Median(values[0]), Median(values[1]), Median(ratios));
    };
    line("calls_per_second", rate, rates);
    line("p50_us", p50, p50s);
    line("p99_us", p99, p99s);
  }
  return 0;
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app("BatchGet beside a server that only sends a ready reply");
  app.add_option("--serve", args.serve, "be the baseline, at this address");
  app.add_option("--reply", args.reply,
                 "file of the ready reply: written by --fetch, read by --serve");
  bool fetch = false;
  app.add_flag("--fetch", fetch, "ask the daemon for the reply, and end");
  app.add_option("--daemon", args.daemon, "address of the daemon");
  app.add_option("--baseline", args.baseline, "address of the baseline");
  app.add_option("--problems", args.problems, "file with a problem in each line");
  app.add_option("--batch", args.batch, "problems in a call")->check(CLI::PositiveNumber);
  app.add_option("--clients", args.clients, "callers at a time")->check(CLI::PositiveNumber);
  app.add_option("--rounds", args.rounds)->check(CLI::PositiveNumber);
  app.add_option("--slice", args.slice_s, "seconds of each slice")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (!args.serve.empty()) return ServeReadyReply(args.serve, ReadAll(args.reply));
  const std::string request = RequestOf(args);
  if (request.empty()) {
    std::fprintf(stderr, "--problems: fewer than --batch problems\n");
    return 2;
  }
  return fetch ? FetchReply(args, request) : Compare(args, request);
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) { return convtune::bench::Main(argc, argv); }
