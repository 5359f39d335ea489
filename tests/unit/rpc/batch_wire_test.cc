#include "server/rpc/batch_wire.h"

#include <gtest/gtest.h>

#include <random>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune {
namespace {

std::string Written(const std::vector<ReplyRow>& rows, std::string_view environment,
                    absl::Time now) {
  const BatchReply reply(&rows, environment, now);
  std::string out(reply.size() + 1, '#');
  reply.WriteTo(reinterpret_cast<uint8_t*>(out.data()));
  EXPECT_EQ(out.back(), '#');
  out.pop_back();
  return out;
}

ReplyRow RowOf(v1::BatchGetResult row, absl::Time tune_time) {
  auto ready = std::make_shared<ReadyRow>();
  const std::string answer = row.answer().SerializeAsString();
  row.clear_answer();
  ready->bytes = row.SerializeAsString();
  ready->head_size = ready->bytes.size();
  ready->bytes += answer;
  ready->source.tune_time = tune_time;
  return {ready, ""};
}

TEST(TakeApart, GivesProblemsInOrderAndTheRestAsItCame) {
  v1::BatchGetRequest request;
  request.set_environment("nvidia-h200");
  request.add_problems()->set_text("one");
  request.add_problems()->set_text("two");
  request.mutable_constraints()->set_max_error(0.5);
  request.set_on_miss(v1::ON_MISS_TUNE);
  request.set_include_hints(true);
  const std::string bytes = request.SerializeAsString();
  const auto parts = TakeApart(bytes);
  ASSERT_TRUE(parts.has_value());
  ASSERT_EQ(parts->problems.size(), 2U);
  EXPECT_EQ(parts->problems[1], request.problems(1).SerializeAsString());
  v1::BatchGetRequest rest;
  ASSERT_TRUE(rest.ParseFromString(parts->rest));
  request.clear_problems();
  EXPECT_EQ(rest.SerializeAsString(), request.SerializeAsString());
}

TEST(TakeApart, RefusesWhateverProtobufRefuses) {
  v1::BatchGetRequest request;
  request.set_environment("nvidia-h200");
  request.add_problems()->set_text("fwd,x=1x2x3x3,w=4x2x1x1");
  request.mutable_options()->set_memory_budget_bytes(int64_t{1} << 40);
  const std::string whole = request.SerializeAsString();
  std::mt19937 random(7);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (unsigned n = random() % 4; n > 0 && !bytes.empty(); --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto parts = TakeApart(bytes);
    if (!parts.has_value()) continue;
    ++taken;
    // The parts, parsed apart, are the message as protobuf reads it.
    v1::BatchGetRequest apart;
    bool readable = apart.ParseFromString(parts->rest);
    for (const std::string_view problem : parts->problems) {
      readable =
          apart.add_problems()->ParseFromArray(problem.data(), static_cast<int>(problem.size())) &&
          readable;
    }
    v1::BatchGetRequest together;
    ASSERT_EQ(together.ParseFromString(bytes), readable);
    if (readable) {
      ASSERT_EQ(together.SerializeAsString(), apart.SerializeAsString());
    }
  }
  EXPECT_GT(taken, 1000);
}

TEST(BatchReply, IsWhatProtobufReads) {
  const absl::Time now = absl::FromUnixSeconds(2000000000);
  v1::BatchGetResult miss;
  miss.set_problem_text("two");
  miss.mutable_miss()->set_message("nothing");
  for (const absl::Duration age :
       {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Seconds(1), absl::Milliseconds(1500),
        absl::Hours(24 * 365), absl::Hours(1000000), -absl::Seconds(5), absl::InfiniteDuration()}) {
    v1::BatchGetResult hit;
    hit.set_tuning_id("v1:0");
    hit.set_problem_text("one");
    hit.mutable_answer()->mutable_winner()->set_text(std::string(300, 'w'));
    hit.mutable_answer()->set_persisted(true);
    v1::BatchGetResponse expected;
    *expected.add_results() = hit;
    *expected.add_results() = miss;
    const absl::Duration shown = std::clamp(age, absl::ZeroDuration(), absl::Seconds(315576000000));
    auto* duration = expected.mutable_results(0)->mutable_answer()->mutable_age();
    duration->set_seconds(absl::ToInt64Seconds(shown));
    duration->set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(shown % absl::Seconds(1))));
    expected.mutable_environment()->set_name("nvidia-h200");
    const std::string bytes = Written({RowOf(hit, now - age), {nullptr, miss.SerializeAsString()}},
                                      expected.environment().SerializeAsString(), now);
    v1::BatchGetResponse read;
    ASSERT_TRUE(read.ParseFromString(bytes));
    EXPECT_EQ(read.SerializeAsString(), expected.SerializeAsString()) << age;
  }
}

}  // namespace
}  // namespace convtune
