// Damaged and hostile bundles against a server and its tuner, and a bundle there and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "convtune/v1/bundle_service.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "server/rpc/server.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/db/bundle/bundle_files.h"
#include "tests/unit/temp_dir.h"

namespace convtune::rpc::services {
namespace {

absl::Status StatusOf(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

class BundleImportTest : public ::testing::Test {
 protected:
  BundleImportTest() { Start(&store_); }

  // Once more, with what the store has by now.
  void Start(MemoryStore* store) {
    Stop();
    tuner::Tuner::Options options;
    options.store = store;
    options.clock = &clock_;
    tuner_ = tuner::Tuner::Create(options).value();
    Serve(folder_.path());
  }

  void Serve(const std::string& state_dir) {
    server_ = nullptr;
    Server::Options options;
    options.listen = {"unix:" + socket_.path("s")};
    options.tuner = tuner_.get();
    options.clock = &clock_;
    options.state_dir = state_dir;
    options.bundle_keys = trusted_;
    server_ = Server::Create(options).value();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::BundleService::NewStub(grpc::CreateCustomChannel(
        options.listen[0], grpc::InsecureChannelCredentials(), arguments));
  }

  void Stop() {
    server_ = nullptr;
    tuner_ = nullptr;
  }

  // `whole`: the bundle has an end, else the server alone ends the call.
  absl::StatusOr<v1::ImportBundleResponse> Import(const std::string& bytes, bool whole = true,
                                                  size_t piece = 1000) {
    grpc::ClientContext context;
    v1::ImportBundleResponse response;
    const auto upload = stub_->ImportBundle(&context, &response);
    v1::ImportBundleRequest request;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      request.set_chunk(bytes.substr(at, piece));
      if (!upload->Write(request)) break;
    }
    if (whole) upload->WritesDone();
    const grpc::Status status = upload->Finish();
    if (!status.ok()) return StatusOf(status);
    return response;
  }

  v1::ImportBundleResponse Imported(const std::string& bytes) {
    const auto response = Import(bytes);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(v1::ImportBundleResponse());
  }

  std::string Export() {
    grpc::ClientContext context;
    const auto download = stub_->ExportBundle(&context, {});
    std::string bytes;
    v1::ExportBundleResponse piece;
    while (download->Read(&piece)) bytes += piece.chunk();
    const grpc::Status status = download->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return bytes;
  }

  db::TestFolder folder_;
  TempDir socket_;
  db::ManualClock clock_;
  MemoryStore store_;
  std::vector<std::string> trusted_;
  std::unique_ptr<tuner::Tuner> tuner_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::BundleService::Stub> stub_;
};

TEST_F(BundleImportTest, TakesEverythingAndAnswersFromItAtOnce) {
  const v1::ImportBundleResponse response =
      Imported(db::bundle::BundleOf(db::bundle::SampleTunings(3)));
  EXPECT_EQ(response.taken_count(), 3);
  EXPECT_EQ(tuner_->Stats().info.tuning_count(), 3);
  const auto tuning = tuner_->GetTuning(
      "nvidia-h200", ConvProblem::Parse(db::bundle::ValidTuning(2).key.problem_text).value());
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->origin, Origin::kImported);
  EXPECT_EQ(tuning->candidates.size(), 5U);
  EXPECT_TRUE(folder_.Names().empty());
}

TEST_F(BundleImportTest, WhatIsNoBundleIsRefusedByItsHead) {
  const absl::Status status = Import(std::string(8, '\0'), /*whole=*/false, 7).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("is no bundle")) << status;
}

TEST_F(BundleImportTest, ASecondImportChangesNothing) {
  const std::string bytes = db::bundle::BundleOf(db::bundle::SampleTunings(3));
  ASSERT_TRUE(Import(bytes).ok());
  const int puts = store_.put_count();
  const auto again = Import(bytes);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->taken_count(), 0);
  EXPECT_EQ(again->kept_count(), 3);
  EXPECT_EQ(store_.put_count(), puts);
}

TEST_F(BundleImportTest, WhatOneDaemonImportedAnotherExportsByteForByte) {
  ASSERT_TRUE(Import(db::bundle::BundleOf(db::bundle::SampleTunings(3))).ok());
  const std::string exported = Export();
  MemoryStore other;
  Start(&other);
  ASSERT_TRUE(Import(exported).ok());
  EXPECT_EQ(Export(), exported);
  Stop();
}

// As SampleTunings, with stock choices that ran, so that they stay MEASURED.
std::vector<Tuning> TuningsWithStock(int count) {
  std::vector<Tuning> tunings = db::bundle::SampleTunings(count);
  for (Tuning& tuning : tunings) {
    for (Candidate& candidate : tuning.candidates) {
      if (!candidate.usable()) candidate.heuristic_rank = -1;
    }
  }
  return tunings;
}

TEST_F(BundleImportTest, KeepsTheBetterEvidence) {
  std::vector<Tuning> here = TuningsWithStock(3);
  here[0].evidence = Evidence::kIncomplete;
  here[1].tune_time += absl::Hours(1);
  for (const Tuning& tuning : here) {
    ASSERT_TRUE(store_.PutTuning(tuning, db::SampleEnvironment()).ok());
  }
  Start(&store_);
  const v1::ImportBundleResponse response = Imported(db::bundle::BundleOf(TuningsWithStock(4)));
  EXPECT_EQ(response.taken_count(), 2);  // the first and the fourth
  EXPECT_EQ(response.kept_count(), 2);
  EXPECT_EQ(*store_.GetTuning(here[1].key), here[1]);
}

TEST_F(BundleImportTest, KeepsACleanMeasurementWhereTheBundleHasAContendedOne) {
  Tuning clean = db::bundle::ValidTuning(1);
  clean.evidence = Evidence::kIncomplete;
  clean.incomplete_message = "the budget ended before 1 candidate";
  ASSERT_TRUE(store_.PutTuning(clean, db::SampleEnvironment()).ok());
  Start(&store_);
  Tuning contended = clean;
  contended.conditions.known = true;
  contended.conditions.other_processes = 2;
  contended.incomplete_message = "contended: 2 other processes on the GPU";
  contended.tune_time += absl::Hours(1);
  const v1::ImportBundleResponse response = Imported(db::bundle::BundleOf({contended}));
  EXPECT_EQ(response.taken_count(), 0);
  EXPECT_EQ(response.kept_count(), 1);
  EXPECT_EQ(*store_.GetTuning(clean.key), clean);
}

TEST_F(BundleImportTest, WhatIsQuarantinedHereStaysOut) {
  const Tuning tuning = db::bundle::ValidTuning(1);
  ASSERT_TRUE(
      store_
          .PutQuarantine(
              {tuning.key, tuning.candidates[0].id, QuarantineReason::kCrashed, "hung", {}, {}})
          .ok());
  Start(&store_);
  ASSERT_TRUE(Import(db::bundle::BundleOf({tuning})).ok());
  const Tuning stored = *store_.GetTuning(tuning.key);
  EXPECT_EQ(stored.candidates[0].id, tuning.candidates[1].id);
  for (const Candidate& candidate : stored.candidates) {
    EXPECT_EQ(candidate.status == CandidateStatus::kQuarantined,
              candidate.id == tuning.candidates[0].id);
  }
}

TEST_F(BundleImportTest, RanksAnewWhateverOrderTheBundleHas) {
  Tuning tuning = db::bundle::ValidTuning(1);
  std::swap(tuning.candidates[0], tuning.candidates[3]);
  ASSERT_TRUE(Import(db::bundle::BundleOf({tuning})).ok());
  const Tuning stored = *store_.GetTuning(tuning.key);
  EXPECT_EQ(stored.candidates[0].id, db::bundle::ValidTuning(1).candidates[0].id);
}

TEST_F(BundleImportTest, ARefusedRowIsNamedAndTheOthersAreTaken) {
  v1::Tuning lie = db::bundle::SampleRow(2);
  lie.mutable_candidates(0)->set_median_us(-1);
  const std::string bytes = db::bundle::BundleOfRows({db::bundle::SampleRow(1), lie},
                                                     db::bundle::SampleBundleEnvironment());
  const v1::ImportBundleResponse response = Imported(bytes);
  EXPECT_EQ(response.refused_count(), 1);
  ASSERT_EQ(response.refusals_size(), 1);
  EXPECT_EQ(response.refusals(0).reason(), v1::REFUSAL_REASON_MEASUREMENT);
  EXPECT_THAT(response.refusals(0).examples(0), testing::HasSubstr("candidates[0].median_us"));
  EXPECT_EQ(response.taken_count(), 1);
  EXPECT_EQ(store_.put_count(), 1);
}

TEST_F(BundleImportTest, AnUnsignedBundleIsRefusedWhereKeysAreTrusted) {
  trusted_ = {std::string(32, 'k')};
  Serve(folder_.path());
  EXPECT_TRUE(absl::IsPermissionDenied(
      Import(db::bundle::BundleOf(db::bundle::SampleTunings(1))).status()));
  EXPECT_EQ(store_.put_count(), 0);
}

TEST_F(BundleImportTest, WhatTheStoreRefusesIsNotHalfTaken) {
  store_.FailWith(absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(absl::IsResourceExhausted(
      Import(db::bundle::BundleOf(db::bundle::SampleTunings(3))).status()));
  EXPECT_EQ(tuner_->Stats().info.tuning_count(), 0);
}

TEST_F(BundleImportTest, AStateDirectoryThatIsNotThereIsUnavailable) {
  Serve("/nonexistent");
  EXPECT_TRUE(absl::IsUnavailable(Import("").status()));
  EXPECT_TRUE(absl::IsUnavailable(Import(db::bundle::BundleOf({})).status()));
}

// Rows that a liar would write into a bundle whose checksums are right: numbers and lengths beyond
// all bounds. Each rule is tried in bundle_codec_test.cc.
std::vector<std::function<void(v1::Tuning*)>> Lies() {
  std::vector<std::function<void(v1::Tuning*)>> lies = {
      [](auto* row) { row->set_environment_number(-1); },
      [](auto* row) { row->set_environment_number(1 << 30); },
      [](auto* row) { row->set_problem_text(std::string(1 << 20, 'x')); },
      [](auto* row) { row->set_problem_text("fwd,x=99999999999999999999x1x1x1,w=1x1x1x1"); },
      [](auto* row) { row->set_evidence(static_cast<v1::Evidence>(1 << 30)); },
      [](auto* row) { row->set_evidence(static_cast<v1::Evidence>(-1)); },
      [](auto* row) { row->mutable_conditions()->set_other_processes(2); },
      [](auto* row) { row->mutable_conditions()->set_mps(true); },
      [](auto* row) { row->mutable_tune_time()->set_seconds(INT64_MAX); },
      [](auto* row) { row->mutable_tune_time()->set_seconds(INT64_MIN); },
      [](auto* row) { row->mutable_elapsed()->set_seconds(INT64_MAX); },
      [](auto* row) { row->set_memory_budget_bytes(INT64_MIN); },
      [](auto* row) { row->set_incomplete_message(std::string(1 << 20, 'r')); },
      [](auto* row) { *row->add_candidates() = row->candidates(0); },
      [](auto* row) {
        for (int i = 0; i < 100'001; ++i) row->add_candidates();
      },
  };
  const std::vector<std::function<void(v1::Candidate*)>> of_candidates = {
      [](auto* c) { c->mutable_engine_config()->add_knob_types(99); },
      [](auto* c) { c->set_status(static_cast<v1::CandidateStatus>(-5)); },
      [](auto* c) { c->add_numerical_notes(static_cast<v1::NumericalNote>(-1)); },
      [](auto* c) { c->add_behavior_notes(static_cast<v1::BehaviorNote>(1 << 20)); },
      [](auto* c) { c->set_heuristic_rank(INT32_MIN); },
      [](auto* c) { c->set_mode_a_place(-1); },
      [](auto* c) { c->set_mode_b_place(32768); },
      [](auto* c) { c->set_fallback_place(INT32_MAX); },
      [](auto* c) { c->set_median_us(std::numeric_limits<float>::max()); },
      [](auto* c) { c->set_sample_count(INT32_MAX); },
      [](auto* c) { c->set_sample_count(INT32_MIN); },
      [](auto* c) { c->set_samples_ns(3, INT64_MIN); },
      [](auto* c) { c->set_error_message(std::string(1 << 20, 'e')); },
  };
  for (const auto& change : of_candidates) {
    lies.push_back([change](auto* row) { change(row->mutable_candidates(0)); });
  }
  return lies;
}

TEST_F(BundleImportTest, OfHundredsOfDamagedAndHostileBundlesNoneIsHalfTaken) {
  std::vector<std::pair<std::string, std::string>> bundles;  // what is wrong with it, bytes
  const std::string sound = db::bundle::BundleOf(db::bundle::SampleTunings(4));
  std::mt19937 random(20'261'121);
  for (int i = 0; i < 100; ++i) {
    std::string bytes = sound;
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    bundles.emplace_back("flip at " + std::to_string(at), std::move(bytes));
  }
  for (int i = 0; i < 60; ++i) {
    const size_t length = random() % sound.size();
    bundles.emplace_back("cut at " + std::to_string(length), sound.substr(0, length));
  }
  for (int i = 0; i < 40; ++i) {
    std::string bytes = sound;
    const size_t at = 8 + random() % (bytes.size() - 16);
    for (size_t k = 0; k < 8; ++k) bytes[at + k] = static_cast<char>(random());
    bundles.emplace_back("garbage at " + std::to_string(at), std::move(bytes));
  }
  bundles.emplace_back("nothing", "");
  bundles.emplace_back("an SQLite file", std::string("SQLite format 3\0", 16) + sound);
  bundles.emplace_back("gzip", "\x1f\x8b\x08" + sound);
  bundles.emplace_back("two bundles", sound + sound);
  bundles.emplace_back("magic alone", std::string(db::bundle::kBundleMagic));
  int number = 0;
  for (const auto& lie : Lies()) {
    v1::Tuning row = db::bundle::SampleRow(2);
    lie(&row);
    bundles.emplace_back("lie " + std::to_string(number++),
                         db::bundle::BundleOfRows({row}, db::bundle::SampleBundleEnvironment()));
  }
  for (const char* text : {"", "/etc/passwd", "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=none"}) {
    v1::BundleEnvironment environment = db::bundle::SampleBundleEnvironment();
    environment.set_text(text);
    bundles.emplace_back(std::string("environment ") + text,
                         db::bundle::BundleOfRows({db::bundle::SampleRow(1)}, environment));
  }
  ASSERT_GE(bundles.size(), 200U);
  for (const auto& [what, bytes] : bundles) {
    const auto response = Import(bytes);
    if (response.ok()) {
      EXPECT_EQ(response->refused_count(), 1) << what;
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << what << ": " << response.status();
    }
    ASSERT_EQ(store_.put_count(), 0) << what;
    ASSERT_EQ(tuner_->Stats().info.tuning_count(), 0) << what;
  }
  EXPECT_TRUE(folder_.Names().empty());
  EXPECT_EQ(Import(sound)->taken_count(), 4);
}

}  // namespace
}  // namespace convtune::rpc::services
