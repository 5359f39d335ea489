#include "server/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "prometheus/text_serializer.h"

namespace convtune::metrics {
namespace {

std::string Text(const MetricsInput& input) {
  return prometheus::TextSerializer().Serialize(MakeFamilies(input));
}

bool HasLine(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Families, NumbersComeWithTheirLabels) {
  MetricsInput input;
  input.version = "1.2.3";
  input.now = absl::FromUnixSeconds(10'000);
  input.stats.info.set_lookups(12);
  input.stats.info.set_hits(7);
  input.lost_sockets = 1;
  input.stats.misses[static_cast<size_t>(v1::MISS_REASON_NOT_FOUND)] = 4;
  input.stats.misses[static_cast<size_t>(v1::MISS_REASON_NO_DEVICE)] = 1;
  v1::Device& device = input.devices.emplace_back();
  device.set_name("gpu:0");
  device.set_environment("nvidia-h200");
  device.set_state(v1::DEVICE_STATE_BACKING_OFF);
  device.set_worker_starts(5);
  device.set_worker_deaths(2);
  EnvironmentCensus& census = input.census["nvidia-h200"];
  census.tunings[Evidence::kMeasured] = 3;
  census.oldest = absl::FromUnixSeconds(4'000);
  const std::string text = Text(input);
  for (const char* line :
       {R"(convtune_build_info{version="1.2.3"} 1)", "convtune_lookups_total 12",
        "convtune_lookup_hits_total 7", R"(convtune_lookup_misses_total{reason="not_found"} 4)",
        R"(convtune_lookup_misses_total{reason="no_device"} 1)", "convtune_sockets_lost 1",
        R"(convtune_worker_deaths_total{device="gpu:0"} 2)",
        R"(convtune_device_state{device="gpu:0",environment="nvidia-h200",state="backing_off"} 1)",
        R"(convtune_device_state{device="gpu:0",environment="nvidia-h200",state="ready"} 0)",
        R"(convtune_tunings{environment="nvidia-h200",evidence="measured"} 3)",
        R"(convtune_evidence_age_seconds{environment="nvidia-h200",of="oldest"} 6000)"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\nin\n" << text;
  }
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("convtune_snapshot")))
      << "nothing is published";
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("convtune_tls_certificate")))
      << "there is no TLS";
}

TEST(Families, OfTlsThereIsTheEndOfTheCertificateAndWhatFailed) {
  MetricsInput input;
  input.certificate_end = 1'234'567;
  input.failed_handshakes[static_cast<size_t>(rpc::http2::HandshakeFailure::kNoCertificate)] = 3;
  const std::string text = Text(input);
  for (const char* line :
       {"convtune_tls_certificate_end_timestamp_seconds 1234567",
        R"(convtune_tls_handshakes_failed_total{reason="no_certificate"} 3)",
        R"(convtune_tls_handshakes_failed_total{reason="certificate_ended"} 0)"}) {
    EXPECT_TRUE(HasLine(text, line)) << line << "\nin\n" << text;
  }
}

TEST(Families, HistogramsAreCumulativeAndInSeconds) {
  constexpr std::array<int64_t, 2> kBounds = {1'000'000, 2'000'000'000};
  Histogram histogram(kBounds);
  histogram.Record(1'000'000);
  histogram.Record(1'500'000'000);
  histogram.Record(5'000'000'000);
  MetricsInput input;
  input.stats.work = {{"gpu:0", "succeeded", histogram.Snapshot()}};
  const std::string text = Text(input);
  const std::string name = "convtune_tuning_duration_seconds";
  const std::string labels = R"(device="gpu:0",outcome="succeeded")";
  EXPECT_TRUE(HasLine(text, name + "_bucket{" + labels + R"(,le="0.001"} 1)")) << text;
  EXPECT_TRUE(HasLine(text, name + "_bucket{" + labels + R"(,le="2"} 2)")) << text;
  EXPECT_TRUE(HasLine(text, name + "_bucket{" + labels + R"(,le="+Inf"} 3)")) << text;
  EXPECT_TRUE(HasLine(text, name + "_count{" + labels + "} 3")) << text;
  EXPECT_TRUE(HasLine(text, name + "_sum{" + labels + "} 6.501")) << text;
}

TEST(Families, EveryNameIsThereOnceAndHasItsHelp) {
  MetricsInput input;
  input.publication.emplace();
  input.publication->mutable_publish_time();
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : MakeFamilies(input)) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_FALSE(family.metric.empty()) << family.name;
  }
  EXPECT_TRUE(names.contains("convtune_snapshot_up_to_date"));
}

}  // namespace
}  // namespace convtune::metrics
