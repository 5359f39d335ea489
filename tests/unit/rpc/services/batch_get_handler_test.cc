// Answers that are kept as bytes: that they are given again, and that they are
// not once anything changed that they were made of.
#include "server/rpc/services/batch_get_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "convtune/v1/tuning_service.pb.h"
#include "db/layered_tunings.h"
#include "server/rpc/messages/request_validator.h"
#include "tests/unit/db/bundle/bundle_files.h"
#include "tests/unit/tuner/tuner_fixture.h"

namespace convtune::rpc::services {
namespace {

// Thread-safe: the tuner's threads read it too.
class MovedClock : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ GUARDED_BY(mutex_) = db::ManualClock().now;
};

struct Asked {
  v1::BatchGetResponse response;
  size_t missing = 0;  // rows that took the tuner

  const v1::BatchGetResult& row(int i = 0) const { return response.results(i); }
};

class BatchGetHandlerTest : public tuner::TunerTest {
 protected:
  void StartWith(const std::string& script, const std::string& environment = kH200) {
    options_.clock = &time_;
    Start(script, environment);
    handler_.emplace(tuner_.get());
  }

  // Problems 1 to `problems` are tuned.
  void StartTuned(int problems = 1) {
    StartWith("candidates=3");
    for (int n = 1; n <= problems; ++n) Tune({Problem(n)});
  }

  static v1::BatchGetRequest RequestOf(const std::vector<ConvProblem>& problems) {
    v1::BatchGetRequest request;
    for (const ConvProblem& problem : problems) {
      *request.add_problems()->mutable_problem() = problem.ToProto();
    }
    return request;
  }

  Asked Ask(const v1::BatchGetRequest& request) {
    Asked asked;
    const std::string bytes = request.SerializeAsString();
    std::optional<Batch> batch = handler_->FindReady(bytes);
    EXPECT_TRUE(batch.has_value());
    asked.missing = batch->missing.problems.size();
    if (!batch->complete()) {
      handler_->Complete(Lookup(batch->missing).value(), &*batch);
    }
    std::string out;
    for (const std::string_view piece : batch->Reply()) out += piece;
    EXPECT_TRUE(asked.response.ParseFromString(out));
    return asked;
  }
  Asked Ask(const ConvProblem& problem) { return Ask(RequestOf({problem})); }

  // Asks until the answer is kept; gives the kept one.
  Asked AskKept(const ConvProblem& problem) {
    EXPECT_EQ(Ask(problem).missing, 1U);
    Asked asked = Ask(problem);
    EXPECT_EQ(asked.missing, 0U);
    return asked;
  }

  absl::Status Pin(const ConvProblem& problem, const std::string& candidate,
                   std::optional<absl::Duration> ttl = std::nullopt) {
    return tuner_->PutPin("", problem, CandidatePattern::Parse(candidate).value(), "test", ttl, 0)
        .status();
  }

  MovedClock time_;
  std::optional<BatchGetHandler> handler_;
};

TEST_F(BatchGetHandlerTest, WhatDoesNotFitIsLeftOutFromTheEndAndCounted) {
  StartWith("candidates=6");
  Tune({Problem(1), Problem(2)});
  v1::BatchGetRequest request = RequestOf({Problem(1), Problem(2), Problem(1), Problem(2)});
  const Asked whole = Ask(request);
  EXPECT_EQ(whole.response.unanswered_count(), 0);
  const auto size = static_cast<int64_t>(whole.response.ByteSizeLong());
  for (const int64_t limit : {size, size - 1, size / 2, int64_t{1}}) {
    request.set_max_reply_bytes(limit);
    // Of the tuner and of what is kept.
    for (int i = 0; i < 2; ++i) {
      const v1::BatchGetResponse part = Ask(request).response;
      EXPECT_EQ(part.results_size() + part.unanswered_count(), 4) << limit;
      EXPECT_GE(part.results_size(), 1) << limit;
      EXPECT_EQ(part.unanswered_count() == 0, limit == size) << limit;
      if (part.results_size() > 1) {
        EXPECT_LE(static_cast<int64_t>(part.ByteSizeLong()), limit);
      }
      EXPECT_EQ(part.environment().name(), whole.response.environment().name());
      for (int r = 0; r < part.results_size(); ++r) {
        EXPECT_EQ(part.results(r).SerializeAsString(),
                  whole.response.results(r).SerializeAsString());
      }
    }
  }
}

TEST_F(BatchGetHandlerTest, ARequestForNoMoreGetsWhatGrpcsClientsTake) {
  StartWith("candidates=6");
  Tune({Problem(1)});
  v1::BatchGetRequest request = RequestOf(std::vector<ConvProblem>(10'000, Problem(1)));
  const v1::BatchGetResponse part = Ask(request).response;
  constexpr size_t kGrpcsDefault = 4 << 20;
  EXPECT_LE(part.ByteSizeLong(), kGrpcsDefault);
  EXPECT_GT(part.ByteSizeLong(), kGrpcsDefault - 2000);
  EXPECT_GT(part.unanswered_count(), 0);
  request.set_max_reply_bytes(int64_t{1} << 40);
  EXPECT_EQ(Ask(request).response.results_size(), 10'000);
}

TEST_F(BatchGetHandlerTest, AReplySaysWhichFieldsOfTheRequestItKnows) {
  StartWith("");
  std::vector<int> numbers;
  for (int i = 0; i < v1::BatchGetRequest::descriptor()->field_count(); ++i) {
    numbers.push_back(v1::BatchGetRequest::descriptor()->field(i)->number());
  }
  EXPECT_THAT(Ask(Problem(1)).response.known_fields(), testing::ElementsAreArray(numbers));
  Tune({Problem(1)});
  EXPECT_THAT(AskKept(Problem(1)).response.known_fields(), testing::ElementsAreArray(numbers));
}

// So a field that is added is heeded, too, unless time alone changes what it means.
TEST_F(BatchGetHandlerTest, AKeptAnswerIsForTheSameFieldsBesideTheProblems) {
  StartWith("");
  Tune({Problem(1)});
  AskKept(Problem(1));
  const google::protobuf::Descriptor* descriptor = v1::BatchGetRequest::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = descriptor->field(i);
    v1::BatchGetRequest request = RequestOf({Problem(1)});
    const google::protobuf::Reflection* reflection = request.GetReflection();
    if (field->is_repeated()) {
      EXPECT_EQ(field->name(), "problems");
      continue;
    }
    switch (field->cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
        reflection->MutableMessage(&request, field);
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnumValue(&request, field, 2);
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(&request, field, "another");
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(&request, field, true);
        break;
      case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(&request, field, 5000);
        break;
      default:
        reflection->SetInt64(&request, field, 5000);
    }
    const std::optional<Batch> batch = handler_->FindReady(request.SerializeAsString());
    EXPECT_TRUE(!batch || batch->missing.problems.size() == 1) << field->name();
  }
  EXPECT_EQ(Ask(Problem(1)).missing, 0U);
}

TEST_F(BatchGetHandlerTest, AnAnswerThatCanBecomeTooOldIsNotKept) {
  StartWith("");
  Tune({Problem(1)});
  time_.Advance(absl::Hours(2));
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.mutable_max_age()->set_seconds(3 * 3600);
  for (int i = 0; i < 2; ++i) {
    const Asked young = Ask(request);
    EXPECT_EQ(young.missing, 1U);
    EXPECT_TRUE(young.row().has_answer());
  }
  time_.Advance(absl::Hours(1));
  EXPECT_EQ(Ask(request).row().miss().reason(), v1::MISS_REASON_TOO_OLD);
  request.mutable_max_age()->set_seconds(2 * 3600);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask(request).row().miss().reason(), v1::MISS_REASON_TOO_OLD);
  }
  ASSERT_TRUE(Pin(Problem(1), "graph:eng0").ok());
  EXPECT_TRUE(Ask(request).row().has_answer());
}

TEST_F(BatchGetHandlerTest, AKeptAnswerIsThatOfTheTuner) {
  StartWith("candidates=6");
  Tune({Problem(1), Problem(2)});
  const auto request = RequestOf({Problem(1), Problem(2), Problem(1)});
  const Asked first = Ask(request);
  EXPECT_EQ(first.missing, 3U);
  ASSERT_TRUE(first.row().has_answer());
  time_.Advance(absl::Hours(24));
  const Asked second = Ask(request);
  EXPECT_EQ(second.missing, 0U);
  EXPECT_EQ(second.response.SerializeAsString(), first.response.SerializeAsString());
  EXPECT_EQ(second.row(1).problem_text(), Problem(2).ToText());
  EXPECT_GT(second.row().answer().runners_up_size(), 0);
}

TEST_F(BatchGetHandlerTest, HitsAreCountedWhoeverAnswers) {
  StartTuned();
  AskKept(Problem(1));
  EXPECT_EQ(tuner_->Stats().info.lookups(), 2);
  EXPECT_EQ(tuner_->Stats().info.hits(), 2);
}

TEST_F(BatchGetHandlerTest, MissesAreAskedForAndTheRestIsReady) {
  StartWith("candidates=3");
  Tune({Problem(1), Problem(3)});
  const auto request = RequestOf({Problem(1), Problem(2), Problem(3)});
  Ask(request);
  const Asked again = Ask(request);
  EXPECT_EQ(again.missing, 1U);
  EXPECT_TRUE(again.row(0).has_answer());
  EXPECT_EQ(again.row(1).miss().reason(), v1::MISS_REASON_NOT_FOUND);
  EXPECT_EQ(again.row(1).problem_text(), Problem(2).ToText());
  EXPECT_EQ(again.row(2).problem_text(), Problem(3).ToText());
}

TEST_F(BatchGetHandlerTest, ANewTuningIsAnsweredAtOnce) {
  StartTuned();
  AskKept(Problem(1));
  time_.Advance(absl::Hours(1));
  Tune({Problem(1)}, /*force=*/true);
  const Asked asked = Ask(Problem(1));
  EXPECT_EQ(asked.missing, 1U);
  EXPECT_EQ(asked.row().answer().tune_time().seconds(), absl::ToUnixSeconds(time_.Now()));
}

TEST_F(BatchGetHandlerTest, APinIsAnsweredAtOnceAndSoIsItsEnd) {
  StartTuned();
  const std::string winner = AskKept(Problem(1)).row().answer().winner().text();
  const std::string other = Ask(Problem(1)).row().answer().runners_up(0).text();
  ASSERT_TRUE(Pin(Problem(1), other).ok());
  EXPECT_EQ(AskKept(Problem(1)).row().answer().winner().text(), other);
  ASSERT_TRUE(tuner_->DeletePin("", Problem(1), 0).ok());
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), winner);
}

TEST_F(BatchGetHandlerTest, APinsAnswerEndsWithIt) {
  StartTuned();
  const std::string winner = AskKept(Problem(1)).row().answer().winner().text();
  const std::string other = Ask(Problem(1)).row().answer().runners_up(0).text();
  ASSERT_TRUE(Pin(Problem(1), other, absl::Minutes(1)).ok());
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), other);
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), other);
  time_.Advance(absl::Minutes(2));
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), winner);
}

TEST_F(BatchGetHandlerTest, ADeletedTuningIsNoLongerAnswered) {
  StartTuned();
  AskKept(Problem(1));
  ASSERT_EQ(tuner_->DeleteTunings("", {Problem(1)}, /*only_from_fleet=*/false).value(), 1);
  EXPECT_TRUE(Ask(Problem(1)).row().has_miss());
}

TEST_F(BatchGetHandlerTest, WhatALayerHasTakesADeletedOnesPlace) {
  db::TestFolder folder;
  db::WriteWholeFile(folder.File("base"), db::bundle::BundleOf(db::bundle::SampleTunings(1)));
  std::vector<std::unique_ptr<db::BundleLayer>> layers;
  layers.push_back(
      db::BundleLayer::Open(folder.File("base"), {}, time_.Now(), [](const std::string& text) {
        ADD_FAILURE() << text;
      }).value());
  options_.bases = layers;
  options_.clock = &time_;
  ASSERT_TRUE(store_
                  .PutTuning(
                      [] {
                        Tuning tuning = db::bundle::ValidTuning(1);
                        tuning.tune_time += absl::Hours(1);
                        tuning.provenance.driver_version = "newer";
                        return tuning;
                      }(),
                      db::SampleEnvironment())
                  .ok());
  Start();
  handler_.emplace(tuner_.get());
  const ConvProblem problem =
      ConvProblem::Parse(db::bundle::ValidTuning(1).key.problem_text).value();
  EXPECT_EQ(AskKept(problem).row().answer().origin(), v1::ORIGIN_LOCAL);
  ASSERT_TRUE(tuner_->DeleteTunings("", {problem}, /*only_from_fleet=*/false).ok());
  EXPECT_EQ(Ask(problem).row().answer().origin(), v1::ORIGIN_IMPORTED);
  tuner_->Drain(SteadyTime::Now());
  tuner_ = nullptr;
}

TEST_F(BatchGetHandlerTest, WhatIsWrittenLaterIsSaidToBeSo) {
  StartWith("candidates=3");
  store_.FailWith(absl::UnavailableError("full"));
  Tune({Problem(1)});
  EXPECT_FALSE(AskKept(Problem(1)).row().answer().persisted());
  store_.FailWith(absl::OkStatus());
  Tune({Problem(2)});
  EXPECT_TRUE(Ask(Problem(1)).row().answer().persisted());
}

TEST_F(BatchGetHandlerTest, ABetterTuningForLessStrictAlignmentIsAnsweredAtOnce) {
  StartWith("candidates=3", tuner::kProfile);
  Tune({Problem(1)});
  AskKept(Problem(1));
  Tuning better = TuningOf({Timed(7, 10)});
  better.key = {Problem(1).WithAlignment(8).ToText(), tuner::kProfile};
  bool given = false;
  const auto source = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
    if (std::exchange(given, true)) return std::nullopt;
    return db::TuningRecord{better, Environment::Parse(tuner::kProfile).value()};
  };
  ASSERT_EQ(tuner_->ImportTunings(source).value().taken_count(), 1);
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), "graph:eng7");
}

TEST_F(BatchGetHandlerTest, ConstraintsHaveAnswersOfTheirOwn) {
  StartWith("candidates=6");
  Tune({Problem(1)});
  const std::string text = AskKept(Problem(1)).row().answer().winner().text();
  v1::BatchGetRequest graph_only = RequestOf({Problem(1)});
  graph_only.mutable_constraints()->set_api(v1::API_LEGACY);
  const Asked legacy = Ask(graph_only);
  EXPECT_EQ(legacy.missing, 1U);
  EXPECT_NE(legacy.row().answer().winner().text(), text);
  EXPECT_EQ(Ask(Problem(1)).row().answer().winner().text(), text);
}

TEST_F(BatchGetHandlerTest, AHeuristicAnswerIsKeptAndStillAMissToTune) {
  StartWith("candidates=3");
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.set_on_miss(v1::ON_MISS_HEURISTIC);
  Ask(request);
  Ask(request);
  EXPECT_EQ(Ask(request).missing, 0U);
  request.set_on_miss(v1::ON_MISS_TUNE);
  const Asked tuned = Ask(request);
  EXPECT_EQ(tuned.missing, 1U);
  EXPECT_GT(tuned.row().answer().evidence(), v1::EVIDENCE_OBSERVED);
  EXPECT_TRUE(tuned.row().answer().fresh());
  EXPECT_FALSE(Ask(Problem(1)).row().answer().fresh());
}

TEST_F(BatchGetHandlerTest, LeastEvidenceIsHeldAgainstKeptAnswers) {
  StartWith("candidates=3");
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.set_on_miss(v1::ON_MISS_HEURISTIC);
  Ask(request);
  EXPECT_EQ(AskKept(Problem(1)).row().answer().evidence(), v1::EVIDENCE_HEURISTIC);
  request = RequestOf({Problem(1)});
  request.set_min_evidence(v1::EVIDENCE_MEASURED);
  EXPECT_EQ(Ask(request).row().miss().reason(), v1::MISS_REASON_INSUFFICIENT_EVIDENCE);
}

TEST_F(BatchGetHandlerTest, TheEnvironmentIsThatOfNow) {
  StartTuned();
  EXPECT_EQ(AskKept(Problem(1)).response.environment().tuning_count(), 1);
  Tune({Problem(2)});
  const Asked asked = Ask(Problem(1));
  EXPECT_EQ(asked.missing, 0U);
  EXPECT_EQ(asked.response.environment().tuning_count(), 2);
}

TEST_F(BatchGetHandlerTest, AKeptAnswerIsNotThatOfAProgramOfAnotherEnvironment) {
  StartTuned();
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.mutable_program()->set_cudnn_version("9.19.0");
  Ask(request);
  EXPECT_EQ(Ask(request).missing, 0U);
  request.mutable_program()->set_cudnn_version("9.12.0");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask(request).row().miss().reason(), v1::MISS_REASON_OTHER_ENVIRONMENT);
  }
}

TEST_F(BatchGetHandlerTest, ADrainingDaemonIsAsked) {
  StartTuned();
  AskKept(Problem(1));
  tuner_->Drain(SteadyTime::Now());
  const std::string bytes = RequestOf({Problem(1)}).SerializeAsString();
  EXPECT_FALSE(handler_->FindReady(bytes)->complete());
}

TEST_F(BatchGetHandlerTest, WhatIsWrongIsLeftToTheValidator) {
  StartWith("candidates=3");
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.mutable_problems(0)->mutable_problem()->set_groups(-1);
  EXPECT_FALSE(handler_->FindReady(request.SerializeAsString()).has_value());
  request = RequestOf({Problem(1)});
  request.set_on_miss(static_cast<v1::OnMiss>(9));
  EXPECT_FALSE(handler_->FindReady(request.SerializeAsString()).has_value());
  EXPECT_FALSE(handler_->FindReady("").has_value());
}

TEST_F(BatchGetHandlerTest, WhetherThereIsTheEnvironmentIsLeftToTheTuner) {
  StartTuned();
  v1::BatchGetRequest request = RequestOf({Problem(1)});
  request.set_environment("nobody-knows");
  const std::optional<Batch> batch = handler_->FindReady(request.SerializeAsString());
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(absl::IsNotFound(Lookup(batch->missing).status()));
}

TEST_F(BatchGetHandlerTest, AnswersOfOtherProblemsStayReadyWhileOneIsTuned) {
  StartTuned(3);
  const auto request = RequestOf({Problem(1), Problem(2), Problem(3)});
  Ask(request);
  Tune({Problem(2)}, /*force=*/true);
  EXPECT_EQ(Ask(request).missing, 1U);
}

TEST_F(BatchGetHandlerTest, WhatAWholeReadTakesIsPreparedAndNothingElse) {
  StartTuned();
  v1::BatchGetRequest request = RequestOf({Problem(1), Problem(2)});
  request.mutable_constraints()->set_max_workspace_bytes(int64_t{1} << 40);
  request.mutable_options()->set_memory_budget_bytes(int64_t{1} << 40);
  Ask(request);
  const std::string whole = request.SerializeAsString();
  std::mt19937 random(7);
  int prepared = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (unsigned n = random() % 4; n > 0 && !bytes.empty(); --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const std::optional<Batch> batch = handler_->FindReady(bytes);
    v1::BatchGetRequest read;
    std::vector<Violation> violations;
    std::optional<lookup::LookupRequest> valid;
    if (read.ParseFromString(bytes)) valid = messages::Validate(read, &violations);
    ASSERT_EQ(batch.has_value(), valid.has_value()) << read.ShortDebugString();
    if (!batch.has_value()) continue;
    ++prepared;
    ASSERT_EQ(batch->rows.size(), valid->problems.size());
    for (size_t row = 0, missing = 0; row < batch->rows.size(); ++row) {
      if (batch->rows[row] != nullptr) continue;
      ASSERT_EQ(batch->missing.problems[missing++].ToText(), valid->problems[row].ToText());
    }
  }
  EXPECT_GT(prepared, 100);
}

std::shared_ptr<const CachedRow> RowOf(const std::string& bytes) {
  auto row = std::make_shared<CachedRow>();
  row->bytes = bytes;
  return row;
}

TEST(ResponseCache, RowsAreFoundByTheirKeys) {
  ResponseCache rows(1 << 20);
  rows.Put("1a", RowOf("one"));
  rows.Put("2a", RowOf("two"));
  ASSERT_NE(rows.Find("1a"), nullptr);
  EXPECT_EQ(rows.Find("1a")->bytes, "one");
  EXPECT_EQ(rows.Find("2a")->bytes, "two");
  EXPECT_EQ(rows.Find("3a"), nullptr);
}

TEST(ResponseCache, TheNewestIsKept) {
  ResponseCache rows(1 << 20);
  rows.Put("a", RowOf("one"));
  rows.Put("a", RowOf("two"));
  EXPECT_EQ(rows.Find("a")->bytes, "two");
}

TEST(ResponseCache, MemoryIsBounded) {
  constexpr size_t kLimit = 1 << 20;
  constexpr size_t kRow = 1000;
  ResponseCache rows(kLimit);
  size_t kept = 0;
  for (int i = 0; i < 10000; ++i) {
    rows.Put(std::to_string(i), RowOf(std::string(kRow, 'x')));
    if (i % 500 != 499) continue;
    kept = 0;
    for (int k = 0; k <= i; ++k) kept += rows.Find(std::to_string(k)) == nullptr ? 0 : kRow;
    ASSERT_LE(kept, kLimit) << i;
  }
  EXPECT_GT(kept, kLimit / 5);
  EXPECT_EQ(rows.Find("0"), nullptr);
  EXPECT_NE(rows.Find("9999"), nullptr);
}

TEST(ResponseCache, WhatIsLargerThanAllIsNotKept) {
  ResponseCache rows(1 << 12);
  rows.Put("a", RowOf(std::string(1 << 13, 'x')));
  EXPECT_EQ(rows.Find("a"), nullptr);
}

TEST(ResponseCache, ManyThreadsAtATime) {
  ResponseCache rows(1 << 18);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&rows, t] {
      for (int i = 0; i < 5000; ++i) {
        const std::string problem = std::to_string((i * 7 + t) % 900);
        const auto row = rows.Find(problem);
        if (row == nullptr) {
          rows.Put(problem, RowOf(problem));
        } else {
          EXPECT_EQ(row->bytes, problem);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace convtune::rpc::services
