#include "server/rpc/messages/request_validator.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace convtune::rpc::messages {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A request in protobuf's text format, the field that must be named and words
// of the rule.
struct Refusal {
  std::string text;
  std::string field;
  std::string rule;
};

template <typename Request>
std::vector<std::string> Refuse(const std::string& text) {
  Request request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  std::vector<Violation> violations;
  EXPECT_FALSE(Validate(request, &violations).has_value()) << text;
  std::vector<std::string> lines;
  for (const Violation& violation : violations) {
    lines.push_back(violation.field + ": " + violation.rule);
  }
  return lines;
}

template <typename Request>
void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const auto& [text, field, rule] : refusals) {
    EXPECT_THAT(Refuse<Request>(text),
                Contains(AllOf(testing::StartsWith(field + ": "), HasSubstr(rule))))
        << text;
  }
}

std::string Quoted(const std::string& field, size_t size) {
  return field + ": \"" + std::string(size, 'a') + "\" ";
}

const char kProblem[] = R"(text: "fwd,x=1x2x3x3,w=4x2x1x1")";

std::string Get(const std::string& more) {
  return std::string("problems { ") + kProblem + " } " + more;
}

TEST(RequestValidator, WhatALookUpBreaksIsNamed) {
  ExpectRefused<v1::BatchGetRequest>({
      {"", "problems", "must have 1 to 10000"},
      {Get(R"(problems { text: "fwd,x=1x2x3x3,w=4x2x1x1,wat=1" })"), "problems[1].text", "wat"},
      {"problems { problem { operation: OPERATION_FWD x_dims: [1,2,3,3] w_dims: [4,2,1,1] "
       "pad_low: [-1] } }",
       "problems[0].problem.pad_low[0]", "-1"},
      {Get(R"(environment: "H200")"), "environment", "lower-case"},
      {Get(R"(environment: "profile:")"), "environment", "lower-case"},
      {Get(Quoted("environment", 129)), "environment", "128"},
      {Get(R"(environment: "h200,cc=9.0")"), "environment", "sms: required"},
      {Get(R"(program { cudnn_version: "9.19" })"), "program.cudnn_version", "must be 3 numbers"},
      {Get("program { library_configuration: 7 }"), "program.library_configuration", "is 7"},
      {Get("program { " + Quoted("gpu_model", 129) + "}"), "program.gpu_model", "128"},
      {Get("constraints { max_workspace_bytes: -1 }"), "constraints.max_workspace_bytes", "is -1"},
      {Get("constraints { api: 9 }"), "constraints.api", "is 9"},
      {Get("constraints { launch: 77 }"), "constraints.launch", "is 77"},
      {Get("constraints { max_error: -0.5 }"), "constraints.max_error", "at least 0"},
      {Get("constraints { max_error: nan }"), "constraints.max_error", "finite"},
      {Get("constraints { cache_state: 9 }"), "constraints.cache_state", "is 9"},
      {Get("on_miss: 12"), "on_miss", "is 12"},
      {Get("on_miss: -1"), "on_miss", "is -1"},
      {Get("max_age { nanos: 999999999 }"), "max_age", "must be 1s to"},
      {Get("max_age { seconds: 3153600001 }"), "max_age", "must be 1s to"},
      {Get("min_evidence: 15"), "min_evidence", "is 15"},
      {Get("max_reply_bytes: -1"), "max_reply_bytes", "negative"},
      {Get("options { wait_idle { seconds: 3601 } }"), "options.wait_idle", "must be 0 to 1h"},
      {Get("options { list_only: true }"), "options.list_only", "must be false in a look-up"},
      {Get("options { time_budget { nanos: 9999999 } }"), "options.time_budget", "10ms"},
      {Get("options { time_budget { seconds: 3600 nanos: 1 } }"), "options.time_budget", "1h"},
      {Get("options { time_budget { seconds: -1 } }"), "options.time_budget", "is -1s"},
      {Get("options { time_budget { seconds: 9223372036854775807 } }"), "options.time_budget",
       "1h"},
      {Get("options { time_budget { seconds: 1 nanos: 1000000000 } }"), "options.time_budget.nanos",
       "999999999"},
      {Get("options { time_budget { seconds: 1 nanos: -1 } }"), "options.time_budget.nanos",
       "sign"},
      {Get("options { memory_budget_bytes: -5 }"), "options.memory_budget_bytes", "is -5"},
      {Get("options { memory_budget_bytes: 1125899906842625 }"), "options.memory_budget_bytes",
       "1125899906842624"},
      {Get("options { max_candidates: -1 }"), "options.max_candidates", "is -1"},
      {Get("options { max_candidates: 100001 }"), "options.max_candidates", "100000"},
      {Get("options { search: 3 }"), "options.search", "is 3"},
      {Get("options { api: 4 }"), "options.api", "is 4"},
  });
}

TEST(RequestValidator, TooManyProblemsAreCountedNotRead) {
  std::string many;
  for (int i = 0; i <= kMaxProblemsPerRequest; ++i) many += R"(problems { text: "nonsense" } )";
  const std::vector<std::string> lines = Refuse<v1::BatchGetRequest>(many);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(testing::StartsWith("problems: "), HasSubstr("10001")));
}

TEST(RequestValidator, EveryViolationIsReportedAtOnce) {
  const std::vector<std::string> lines = Refuse<v1::BatchGetRequest>(
      R"(environment: "?" problems { text: "x" } on_miss: 9 min_evidence: 1
         options { search: 9 max_candidates: -1 } constraints { api: 9 launch: 9 })");
  for (const char* field :
       {"environment", "problems[0].text", "on_miss", "min_evidence", "options.search",
        "options.max_candidates", "constraints.api", "constraints.launch"}) {
    EXPECT_THAT(lines, Contains(testing::StartsWith(std::string(field) + ": ")));
  }
}

TEST(RequestValidator, WhatAJobBreaksIsNamed) {
  ExpectRefused<v1::CreateTuningJobRequest>({
      {"", "problems", "must have 1 to 10000"},
      {Get("priority: 3"), "priority", "is 3"},
      {Get(Quoted("request_id", 129)), "request_id", "128"},
      {Get(R"(request_id: "a\nb")"), "request_id", "control"},
  });
  for (const char* name :
       {"jobs/", "7", "jobs/0", "jobs/07", "jobs/+7", "jobs/99999999999999999999", "jobs/7/../8"}) {
    ExpectRefused<v1::GetTuningJobRequest>(
        {{std::string("name: \"") + name + "\"", "name", "jobs/7"}});
  }
  const Refusal missing{"", "name", "required"};
  ExpectRefused<v1::GetTuningJobRequest>({missing});
  ExpectRefused<v1::WatchTuningJobRequest>({missing});
  ExpectRefused<v1::CancelTuningJobRequest>({missing});
}

TEST(RequestValidator, WhatAListBreaksIsNamed) {
  const std::vector<Refusal> refusals = {
      {"page_size: -1", "page_size", "is -1"},
      {Quoted("page_token", 4097), "page_token", "4096"},
  };
  ExpectRefused<v1::ListTuningJobsRequest>(refusals);
  ExpectRefused<v1::ListTuningsRequest>(refusals);
  ExpectRefused<v1::ListPinsRequest>(refusals);
  ExpectRefused<v1::ListEnvironmentsRequest>(refusals);
  ExpectRefused<v1::ListReleasesRequest>(refusals);
  ExpectRefused<v1::DiffReleasesRequest>({refusals[1]});
  ExpectRefused<v1::ListWantedRequest>({refusals[1]});
  ExpectRefused<v1::ListPinsRequest>({{R"(environment: "A")", "environment", "lower-case"}});
  ExpectRefused<v1::ListTuningsRequest>({{Quoted("text_filter", 4097), "text_filter", "4096"}});
}

std::string BanText(const std::string& more) {
  return R"(ban { candidate: "eng1" author: "ada" reason: "r" )" + more + " }";
}

// What else a ban may break is in ban_proto_test.cc.
TEST(RequestValidator, WhatABanBreaksIsNamed) {
  ExpectRefused<v1::CreateBanRequest>({
      {"", "ban", "must be given"},
      {R"(ban { author: "ada" reason: "r" })", "ban.candidate", "required"},
      {R"(ban { candidate: "*" author: "ada" reason: "r" })", "ban.candidate", "legacy:*"},
      {R"(ban { candidate: "eng1" reason: "r" })", "ban.author", "required"},
      {BanText(R"(cudnn: ">=9.20,<9.19")"), "ban.cudnn", "no version"},
      {BanText("operation: 9"), "ban.operation", ""},
      {BanText("data_type: 99"), "ban.data_type", ""},
      {BanText("layout: 9"), "ban.layout", ""},
      {BanText("spatial_rank: 3"), "ban.spatial_rank", "not be given"},
      {BanText("expire_time { seconds: -1 }"), "ban.expire_time.seconds", "0"},
      {BanText("") + " max_changes: 10001", "max_changes", "10000"},
  });
  for (const char* name : {"", "3", "bans/", "bans/0", "bans/x", "bans/-1", "shipped/1"}) {
    ExpectRefused<v1::DeleteBanRequest>(
        {{std::string("name: \"") + name + "\"", "name", "bans/ and a number"}});
  }
  ExpectRefused<v1::DeleteBanRequest>(
      {{R"(name: "bans/3" fleet_ban: -1)", "fleet_ban", "negative"}});
}

TEST(RequestValidator, ABanIsRead) {
  v1::CreateBanRequest request;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      BanText(R"(cudnn: "9.19" gpu: "NVIDIA H200")") + " dry_run: true", &request));
  std::vector<Violation> violations;
  const auto args = Validate(request, &violations);
  ASSERT_TRUE(args.has_value()) << ToString(violations);
  EXPECT_EQ(args->ban.candidate.ToText(), "graph:eng1");
  EXPECT_EQ(args->ban.cudnn.ToText(), ">=9.19.0,<9.20.0");
  EXPECT_EQ(args->ban.gpu, "nvidia-h200");
  EXPECT_TRUE(args->dry_run);
  EXPECT_EQ(args->max_changes, 1000U);
}

std::string PinText(const std::string& more) {
  return std::string("problem { ") + kProblem + " } " + more;
}

TEST(RequestValidator, WhatAPinBreaksIsNamed) {
  const std::string sound = PinText(R"(candidate: "graph:eng1" reason: "r" )");
  ExpectRefused<v1::PinRequest>({
      {R"(candidate: "graph:eng1" reason: "r")", "problem", "required"},
      {PinText(R"(reason: "r")"), "candidate", "required"},
      {PinText(R"(candidate: "engine1" reason: "r")"), "candidate", ""},
      {PinText(R"(candidate: "graph:eng1")"), "reason", "required"},
      {PinText(R"(candidate: "graph:eng1" )" + Quoted("reason", 501)), "reason", "500"},
      {sound + "ttl { nanos: 999999999 }", "ttl", "1s"},
      {sound + "ttl { seconds: 315576000000 }", "ttl", "876000h"},
      {sound + "fleet_pin: -1", "fleet_pin", "negative"},
  });
  ExpectRefused<v1::UnpinRequest>({{R"(problem { text: "x" })", "problem.text", ""},
                                   {PinText("fleet_pin: -1"), "fleet_pin", "negative"}});
}

TEST(RequestValidator, WhatARequestOfReleasesOrTheFleetBreaksIsNamed) {
  ExpectRefused<v1::PromoteReleaseRequest>({{R"(author: "a\nb")", "author", ""},
                                            {"", "reason", "required"},
                                            {"canary_permille: 1000", "canary_permille", "999"}});
  ExpectRefused<v1::RollBackReleaseRequest>({{Quoted("author", 129), "author", "128"},
                                             {Quoted("reason", 501), "reason", "500"},
                                             {"release: -1", "release", "is -1"}});
  ExpectRefused<v1::FollowReleaseRequest>({{R"(author: "a\nb")", "author", ""},
                                           {"", "reason", "required"},
                                           {"release: -1", "release", "is -1"}});
  ExpectRefused<v1::DiffReleasesRequest>({{"from: -1", "from", "is -1"},
                                          {"to: -1", "to", "is -1"},
                                          {"max_changes: 10001", "max_changes", "10000"},
                                          {R"(environment: "H200")", "environment", "lower"},
                                          {R"(environment: "h 200")", "environment", "lower"}});
  ExpectRefused<v1::ListWantedRequest>({{"max_problems: -1", "max_problems", "is -1"}});
  ExpectRefused<v1::GetFleetStateRequest>({{R"(agent: "a\nb")", "agent", ""}});
  ExpectRefused<v1::ReadOutboxRequest>({{"max_rows: 1001", "max_rows", "1000"}});
}

TEST(RequestValidator, WhatOtherRequestsBreakIsNamed) {
  ExpectRefused<v1::GetTuningRequest>({{"", "problem", "required"}});
  ExpectRefused<v1::DeleteTuningRequest>({{"", "problems", "must have 1 to 10000"}});
  ExpectRefused<v1::BackupDatabaseRequest>({{R"(path: "/a\000b")", "path", "control"}});
}

TEST(Accepted, AnAgentHasTheNameOfANodeOrNone) {
  std::vector<Violation> violations;
  v1::GetFleetStateRequest request;
  EXPECT_TRUE(Validate(request, &violations).has_value());
  request.set_agent("node 7");
  EXPECT_TRUE(Validate(request, &violations).has_value());
}

TEST(Accepted, BatchGetReadsEveryField) {
  v1::BatchGetRequest request;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      Get(R"(environment: "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"
             program { gpu_model: "NVIDIA H200" compute_capability: "9.0" sm_count: 132
               cudnn_version: "9.19.0" library_configuration: LIBRARY_CONFIGURATION_FULL }
             on_miss: ON_MISS_TUNE
             min_evidence: EVIDENCE_MEASURED include_hints: true
             constraints { max_workspace_bytes: 0 deterministic: true forbid_tf32: true
               forbid_down_convert: true forbid_winograd: true forbid_fft: true
               forbid_reduced_precision_reduction: true api: API_GRAPH
               launch: LAUNCH_MODE_GRAPH_CAPTURE max_error: 0.25
               cache_state: CACHE_STATE_HOT }
             options { time_budget { seconds: 2 nanos: 500000000 } memory_budget_bytes: 1024
               max_candidates: 10 search: SEARCH_EXHAUSTIVE api: API_LEGACY
               wait_idle { seconds: 60 } all_timings: true })"),
      &request));
  std::vector<Violation> violations;
  const auto out = Validate(request, &violations);
  ASSERT_TRUE(out.has_value()) << ToString(violations);
  EXPECT_EQ(out->environment, "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  EXPECT_EQ(KnownText(out->program), "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  ASSERT_EQ(out->problems.size(), 1u);
  EXPECT_EQ(out->demand.on_miss, jobs::OnMiss::kTune);
  EXPECT_EQ(out->demand.min_evidence, Evidence::kMeasured);
  EXPECT_TRUE(out->include_hints);
  const Constraints constraints{.max_workspace_bytes = 0,
                                .deterministic = true,
                                .forbid_tf32 = true,
                                .forbid_down_convert = true,
                                .forbid_winograd = true,
                                .forbid_fft = true,
                                .forbid_reduced_precision_reduction = true,
                                .api = convtune::Api::kGraph,
                                .launch = LaunchMode::kGraphCapture,
                                .max_error = 0.25,
                                .cache_state = CacheState::kHot};
  EXPECT_EQ(out->demand.constraints, constraints);
  EXPECT_EQ(out->demand.options.time_budget, absl::Milliseconds(2500));
  EXPECT_EQ(out->demand.options.memory_budget_bytes, 1024);
  EXPECT_EQ(out->demand.options.max_candidates, 10);
  EXPECT_EQ(out->demand.options.wait_idle, absl::Minutes(1));
  EXPECT_TRUE(out->demand.options.all_timings);
  EXPECT_EQ(out->demand.options.search, jobs::Search::kExhaustive);
  EXPECT_EQ(out->demand.options.api, convtune::Api::kLegacy);
}

TEST(Accepted, DefaultsAreThoseOfTheApi) {
  v1::BatchGetRequest request;
  request.add_problems()->set_text("fwd,x=1x2x3x3,w=4x2x1x1");
  std::vector<Violation> violations;
  const auto out = Validate(request, &violations);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->demand.on_miss, jobs::OnMiss::kNone);
  EXPECT_EQ(out->demand.min_evidence, Evidence::kNone);
  EXPECT_EQ(out->demand.constraints, Constraints());
  EXPECT_EQ(out->demand.options.time_budget, absl::Seconds(30));
  EXPECT_EQ(out->demand.options.search, jobs::Search::kHeuristics);
}

TEST(Accepted, APageSizeBeyondTheMostIsTheMostAndZeroTheDefault) {
  EXPECT_EQ(PageSizeOf(0), 100);
  EXPECT_EQ(PageSizeOf(7), 7);
  EXPECT_EQ(PageSizeOf(1 << 30), 1000);
  EXPECT_EQ(RowsOf(0), 1000U);
  EXPECT_EQ(RowsOf(7), 7U);
  EXPECT_EQ(RowsOf(0, kDefaultOutboxRows), 100U);
}

}  // namespace
}  // namespace convtune::rpc::messages
