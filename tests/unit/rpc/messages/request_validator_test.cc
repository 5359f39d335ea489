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
  std::string name;
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
void ExpectRefused(const Refusal& refusal) {
  EXPECT_THAT(Refuse<Request>(refusal.text),
              Contains(AllOf(testing::StartsWith(refusal.field + ": "), HasSubstr(refusal.rule))))
      << refusal.text;
}

std::string Name(const testing::TestParamInfo<Refusal>& info) { return info.param.name; }

const char kProblem[] = R"(text: "fwd,x=1x2x3x3,w=4x2x1x1")";

std::string Get(const std::string& more) {
  return std::string("problems { ") + kProblem + " } " + more;
}

std::string GetProblem(const std::string& problem) { return "problems { " + problem + " }"; }

std::string Fields(const std::string& more) {
  return GetProblem("problem { operation: OPERATION_FWD x_dims: [1,2,3,3] w_dims: [4,2,1,1] " +
                    more + " }");
}

class BatchGetRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(BatchGetRefusal, NamesFieldAndRule) { ExpectRefused<v1::BatchGetRequest>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Request, BatchGetRefusal,
    testing::Values(
        Refusal{"NoProblems", "", "problems", "must have 1 to 10000"},
        Refusal{"NoForm", "problems { }", "problems[0]", ""},
        Refusal{"EmptyText", R"(problems { text: "" })", "problems[0].text", ""},
        Refusal{"UnknownToken", R"(problems { text: "fwd,x=1x2x3x3,w=4x2x1x1,wat=1" })",
                "problems[0].text", "wat"},
        Refusal{"SecondProblem", Get(R"(problems { text: "bwd" })"), "problems[1].text", ""},
        Refusal{"UpperCaseEnvironment", Get(R"(environment: "H200")"), "environment", "lower-case"},
        Refusal{"EnvironmentWithSpace", Get(R"(environment: "h 200")"), "environment",
                "lower-case"},
        Refusal{"OnlyProfilePrefix", Get(R"(environment: "profile:")"), "environment",
                "lower-case"},
        Refusal{"LongEnvironment", Get("environment: \"" + std::string(129, 'a') + "\""),
                "environment", "128"},
        Refusal{"TextOfAnEnvironmentThatIsNone", Get(R"(environment: "h200,cc=9.0")"),
                "environment", "sms: required"},
        Refusal{"ProgramsVersion", Get(R"(program { cudnn_version: "9.19" })"),
                "program.cudnn_version", "must be 3 numbers"},
        Refusal{"ProgramsLibrary", Get("program { library_configuration: 7 }"),
                "program.library_configuration", "is 7"},
        Refusal{"ProgramsModel", Get("program { gpu_model: \"" + std::string(129, 'a') + "\" }"),
                "program.gpu_model", "128"},
        Refusal{"NegativeWorkspace", Get("constraints { max_workspace_bytes: -1 }"),
                "constraints.max_workspace_bytes", "is -1"},
        Refusal{"UnknownApi", Get("constraints { api: 9 }"), "constraints.api", "is 9"},
        Refusal{"UnknownLaunch", Get("constraints { launch: 77 }"), "constraints.launch", "is 77"},
        Refusal{"NegativeMaxError", Get("constraints { max_error: -0.5 }"), "constraints.max_error",
                "at least 0"},
        Refusal{"MaxErrorThatIsNoNumber", Get("constraints { max_error: nan }"),
                "constraints.max_error", "finite"},
        Refusal{"UnknownCacheState", Get("constraints { cache_state: 9 }"),
                "constraints.cache_state", "is 9"},
        Refusal{"WaitTooLong", Get("options { wait_idle { seconds: 3601 } }"), "options.wait_idle",
                "must be 0 to 1h"},
        Refusal{"ListOnly", Get("options { list_only: true }"), "options.list_only",
                "must be false in a look-up"},
        Refusal{"UnknownOnMiss", Get("on_miss: 12"), "on_miss", "is 12"},
        Refusal{"AgeBelowASecond", Get("max_age { nanos: 999999999 }"), "max_age", "must be 1s to"},
        Refusal{"AgeBeyondACentury", Get("max_age { seconds: 3153600001 }"), "max_age",
                "must be 1s to"},
        Refusal{"UnknownEvidence", Get("min_evidence: 15"), "min_evidence", "is 15"},
        Refusal{"NegativeEnum", Get("on_miss: -1"), "on_miss", "is -1"},
        Refusal{"ZeroBudget", Get("options { time_budget { } }"), "options.time_budget", "10ms"},
        Refusal{"ShortBudget", Get("options { time_budget { nanos: 9999999 } }"),
                "options.time_budget", "10ms"},
        Refusal{"LongBudget", Get("options { time_budget { seconds: 3600 nanos: 1 } }"),
                "options.time_budget", "1h"},
        Refusal{"NegativeBudget", Get("options { time_budget { seconds: -1 } }"),
                "options.time_budget", "is -1s"},
        Refusal{"HugeBudget", Get("options { time_budget { seconds: 9223372036854775807 } }"),
                "options.time_budget", "1h"},
        Refusal{"NanosOverflow", Get("options { time_budget { seconds: 1 nanos: 1000000000 } }"),
                "options.time_budget.nanos", "999999999"},
        Refusal{"MixedSigns", Get("options { time_budget { seconds: 1 nanos: -1 } }"),
                "options.time_budget.nanos", "sign"},
        Refusal{"NegativeMemory", Get("options { memory_budget_bytes: -5 }"),
                "options.memory_budget_bytes", "is -5"},
        Refusal{"HugeMemory", Get("options { memory_budget_bytes: 1125899906842625 }"),
                "options.memory_budget_bytes", "1125899906842624"},
        Refusal{"NegativeReply", Get("max_reply_bytes: -1"), "max_reply_bytes", "negative"},
        Refusal{"NegativeCandidates", Get("options { max_candidates: -1 }"),
                "options.max_candidates", "is -1"},
        Refusal{"ManyCandidates", Get("options { max_candidates: 100001 }"),
                "options.max_candidates", "100000"},
        Refusal{"UnknownSearch", Get("options { search: 3 }"), "options.search", "is 3"},
        Refusal{"UnknownOptionsApi", Get("options { api: 4 }"), "options.api", "is 4"}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    Problem, BatchGetRefusal,
    testing::Values(
        Refusal{"NoOperation", GetProblem("problem { x_dims: [1,2,3,3] w_dims: [4,2,1,1] }"),
                "problems[0].problem.operation", ""},
        Refusal{"UnknownOperation",
                GetProblem("problem { operation: 9 x_dims: [1,2,3,3] w_dims: [4,2,1,1] }"),
                "problems[0].problem.operation", "9"},
        Refusal{"NoDims", GetProblem("problem { operation: OPERATION_FWD }"),
                "problems[0].problem.x_dims", ""},
        Refusal{"ZeroDim",
                GetProblem("problem { operation: OPERATION_FWD x_dims: [1,2,0,3] w_dims: "
                           "[4,2,1,1] }"),
                "problems[0].problem.x_dims[2]", ""},
        Refusal{"NegativeDim",
                GetProblem("problem { operation: OPERATION_FWD x_dims: [-1,2,3,3] w_dims: "
                           "[4,2,1,1] }"),
                "problems[0].problem.x_dims[0]", "-1"},
        Refusal{"NegativePadding", Fields("pad_low: [-1]"), "problems[0].problem.pad_low[0]", "-1"},
        Refusal{"ZeroStride", Fields("strides: [0]"), "problems[0].problem.strides[0]", "0"},
        Refusal{"ZeroDilation", Fields("dilations: [0]"), "problems[0].problem.dilations[0]", "0"},
        Refusal{"NegativeGroups", Fields("groups: -1"), "problems[0].problem.groups", "-1"},
        Refusal{"GroupsDoNotDivide", Fields("groups: 3"), "problems[0].problem.groups", ""},
        Refusal{"UnknownDataType", Fields("data_type: 99"), "problems[0].problem.data_type", "99"},
        Refusal{"UnknownLayout", Fields("layout: 8"), "problems[0].problem.layout", "8"},
        Refusal{"UnknownMode", Fields("mode: 8"), "problems[0].problem.mode", "8"},
        Refusal{"AlignmentNotPowerOfTwo", Fields("alignment_bytes: 3"),
                "problems[0].problem.alignment_bytes", "3"},
        Refusal{"HugeSmCount", Fields("sm_count_target: 1025"),
                "problems[0].problem.sm_count_target", "1024"}),
    Name);

TEST(BatchGetRefusal, TooManyProblemsAreCountedNotRead) {
  v1::BatchGetRequest request;
  for (int i = 0; i <= kMaxProblemsPerRequest; ++i) {
    request.add_problems()->set_text("nonsense");
  }
  std::vector<Violation> violations;
  EXPECT_FALSE(Validate(request, &violations).has_value());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "problems");
  EXPECT_THAT(violations[0].rule, HasSubstr("10001"));
}

TEST(BatchGetRefusal, ReportsEveryViolationAtOnce) {
  const std::vector<std::string> lines = Refuse<v1::BatchGetRequest>(
      R"(environment: "?" problems { text: "x" } on_miss: 9 min_evidence: 1
         options { search: 9 max_candidates: -1 } constraints { api: 9 launch: 9 })");
  for (const char* field :
       {"environment", "problems[0].text", "on_miss", "min_evidence", "options.search",
        "options.max_candidates", "constraints.api", "constraints.launch"}) {
    EXPECT_THAT(lines, Contains(testing::StartsWith(std::string(field) + ": ")));
  }
}

class CreateJobRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(CreateJobRefusal, NamesFieldAndRule) {
  ExpectRefused<v1::CreateTuningJobRequest>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Request, CreateJobRefusal,
    testing::Values(Refusal{"NoProblems", "", "problems", "must have 1 to 10000"},
                    Refusal{"UnknownPriority", Get("priority: 3"), "priority", "is 3"},
                    Refusal{"LongRequestId", Get("request_id: \"" + std::string(129, 'a') + "\""),
                            "request_id", "128"},
                    Refusal{"ControlInRequestId", Get("request_id: \"a\\nb\""), "request_id",
                            "control"}),
    Name);

class JobNameRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(JobNameRefusal, NamesFieldAndRule) {
  ExpectRefused<v1::GetTuningJobRequest>(GetParam());
  ExpectRefused<v1::WatchTuningJobRequest>(GetParam());
  ExpectRefused<v1::CancelTuningJobRequest>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Request, JobNameRefusal,
    testing::Values(Refusal{"Missing", "", "name", "required"},
                    Refusal{"NoNumber", R"(name: "jobs/")", "name", "jobs/7"},
                    Refusal{"NoPrefix", R"(name: "7")", "name", "jobs/7"},
                    Refusal{"Zero", R"(name: "jobs/0")", "name", "jobs/7"},
                    Refusal{"LeadingZero", R"(name: "jobs/07")", "name", "jobs/7"},
                    Refusal{"Sign", R"(name: "jobs/+7")", "name", "jobs/7"},
                    Refusal{"Overflow", R"(name: "jobs/99999999999999999999")", "name", "jobs/7"},
                    Refusal{"Path", R"(name: "jobs/7/../8")", "name", "jobs/7"}),
    Name);

class ListRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(ListRefusal, NamesFieldAndRule) {
  ExpectRefused<v1::ListTuningJobsRequest>(GetParam());
  ExpectRefused<v1::ListTuningsRequest>(GetParam());
  ExpectRefused<v1::ListPinsRequest>(GetParam());
  ExpectRefused<v1::ListEnvironmentsRequest>(GetParam());
  ExpectRefused<v1::ListReleasesRequest>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    Request, ListRefusal,
    testing::Values(Refusal{"NegativePage", "page_size: -1", "page_size", "is -1"},
                    Refusal{"LongToken", "page_token: \"" + std::string(4097, 'a') + "\"",
                            "page_token", "4096"}),
    Name);

class BanRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(BanRefusal, NamesFieldAndRule) { ExpectRefused<v1::CreateBanRequest>(GetParam()); }
std::string BanText(const std::string& more) {
  return R"(ban { candidate: "eng1" author: "ada" reason: "r" )" + more + " }";
}
INSTANTIATE_TEST_SUITE_P(
    Request, BanRefusal,
    testing::Values(
        Refusal{"NoBan", "", "ban", "must be given"},
        Refusal{"NoCandidate", R"(ban { author: "ada" reason: "r" })", "ban.candidate", "required"},
        Refusal{"AnyCandidate", R"(ban { candidate: "*" author: "ada" reason: "r" })",
                "ban.candidate", "legacy:*"},
        Refusal{"NoAuthor", R"(ban { candidate: "eng1" reason: "r" })", "ban.author", "required"},
        Refusal{"NoReason", R"(ban { candidate: "eng1" author: "ada" })", "ban.reason", "required"},
        Refusal{"BadVersions", BanText(R"(cudnn: "new")"), "ban.cudnn", "<9.20"},
        Refusal{"NoVersion", BanText(R"(cudnn: ">=9.20,<9.19")"), "ban.cudnn", "no version"},
        Refusal{"BadGpu", BanText(R"(gpu: "h200;")"), "ban.gpu", "GPU's name"},
        Refusal{"UnknownOperation", BanText("operation: 9"), "ban.operation", ""},
        Refusal{"UnknownDataType", BanText("data_type: 99"), "ban.data_type", ""},
        Refusal{"UnknownLayout", BanText("layout: 9"), "ban.layout", ""},
        Refusal{"Dimensions", BanText("spatial_rank: 3"), "ban.spatial_rank", "not be given"},
        Refusal{"BadFleetBan", BanText("fleet_ban: -1"), "ban.fleet_ban", "negative"},
        Refusal{"BadTime", BanText("expire_time { seconds: -1 }"), "ban.expire_time.seconds", "0"},
        Refusal{"ManyChanges", BanText("") + " max_changes: 10001", "max_changes", "10000"}),
    Name);

TEST(RequestValidator, EveryBrokenRuleOfABanIsReported) {
  EXPECT_EQ(Refuse<v1::CreateBanRequest>(R"(ban { candidate: "x" cudnn: "y" gpu: ";" })").size(),
            5U);
}

TEST(RequestValidator, ABanIsRead) {
  v1::CreateBanRequest request;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      BanText(R"(cudnn: "9.19" gpu: "NVIDIA H200" operation: OPERATION_BWD_DATA
                 data_type: DATA_TYPE_BF16 layout: TENSOR_LAYOUT_NHWC fleet_ban: 7
                 expire_time { seconds: 2000000000 })") +
          " dry_run: true",
      &request));
  std::vector<Violation> violations;
  const auto args = Validate(request, &violations);
  ASSERT_TRUE(args.has_value()) << ToString(violations);
  EXPECT_EQ(args->ban.candidate.ToText(), "graph:eng1");
  EXPECT_EQ(args->ban.cudnn.ToText(), ">=9.19.0,<9.20.0");
  EXPECT_EQ(args->ban.gpu, "nvidia-h200");
  EXPECT_EQ(args->ban.operation, Operation::kBwdData);
  EXPECT_EQ(args->ban.data_type, DataType::kBF16);
  EXPECT_EQ(args->ban.layout, TensorLayout::kNhwc);
  EXPECT_EQ(args->ban.fleet_ban, 7);
  EXPECT_EQ(args->ban.expire_time, absl::FromUnixSeconds(2'000'000'000));
  EXPECT_TRUE(args->dry_run);
  EXPECT_EQ(args->max_changes, 1000U);
}

TEST(RequestValidator, ADeletedBanIsNamed) {
  for (const char* name : {"", "3", "bans/", "bans/0", "bans/x", "bans/-1", "shipped/1"}) {
    ExpectRefused<v1::DeleteBanRequest>(
        {"", std::string("name: \"") + name + "\"", "name", "bans/ and a number"});
  }
  ExpectRefused<v1::DeleteBanRequest>(
      {"", R"(name: "bans/3" fleet_ban: -1)", "fleet_ban", "negative"});
}

class PinRefusal : public testing::TestWithParam<Refusal> {};
TEST_P(PinRefusal, NamesFieldAndRule) { ExpectRefused<v1::PinRequest>(GetParam()); }
std::string PinText(const std::string& more) {
  return std::string("problem { ") + kProblem + " } " + more;
}
INSTANTIATE_TEST_SUITE_P(
    Request, PinRefusal,
    testing::Values(
        Refusal{"NoProblem", R"(candidate: "graph:eng1" reason: "r")", "problem", "required"},
        Refusal{"NoCandidate", PinText(R"(reason: "r")"), "candidate", "required"},
        Refusal{"BadCandidate", PinText(R"(candidate: "engine1" reason: "r")"), "candidate", ""},
        Refusal{"NoReason", PinText(R"(candidate: "graph:eng1")"), "reason", "required"},
        Refusal{"LongReason",
                PinText(R"(candidate: "graph:eng1" reason: ")" + std::string(501, 'r') + "\""),
                "reason", "500"},
        Refusal{"ShortTtl",
                PinText(R"(candidate: "graph:eng1" reason: "r" ttl { nanos: 999999999 })"), "ttl",
                "1s"},
        Refusal{"HugeTtl",
                PinText(R"(candidate: "graph:eng1" reason: "r" ttl { seconds: 315576000000 })"),
                "ttl", "876000h"},
        Refusal{"BadFleetPin", PinText(R"(candidate: "graph:eng1" reason: "r" fleet_pin: -1)"),
                "fleet_pin", "negative"}),
    Name);

TEST(OtherRefusals, NameFieldAndRule) {
  ExpectRefused<v1::GetTuningRequest>({"", "", "problem", "required"});
  ExpectRefused<v1::UnpinRequest>({"", R"(problem { text: "x" })", "problem.text", ""});
  ExpectRefused<v1::UnpinRequest>({"", PinText("fleet_pin: -1"), "fleet_pin", "negative"});
  ExpectRefused<v1::DeleteTuningRequest>({"", "", "problems", "must have 1 to 10000"});
  ExpectRefused<v1::ListPinsRequest>({"", R"(environment: "A")", "environment", "lower-case"});
  ExpectRefused<v1::ListTuningsRequest>(
      {"", "text_filter: \"" + std::string(4097, 'a') + "\"", "text_filter", "4096"});
  const std::string long_token = "page_token: \"" + std::string(4097, 'a') + "\"";
  ExpectRefused<v1::DiffReleasesRequest>({"", long_token, "page_token", "4096"});
  ExpectRefused<v1::ListWantedRequest>({"", long_token, "page_token", "4096"});
  ExpectRefused<v1::BackupDatabaseRequest>({"", R"(path: "/a\000b")", "path", "control"});
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
  const Constraints constraints{0,
                                true,
                                true,
                                true,
                                true,
                                true,
                                true,
                                convtune::Api::kGraph,
                                LaunchMode::kGraphCapture,
                                0.25,
                                CacheState::kHot};
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
}

}  // namespace
}  // namespace convtune::rpc::messages
