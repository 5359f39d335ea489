#include "db/bundle/bundle_environment.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kMaxText = 256;

void CheckText(const char* field, const std::string& text, std::vector<Violation>* violations) {
  if (text.size() > kMaxText) {
    violations->push_back(
        {field, Concat("must have at most ", kMaxText, " bytes, has ", text.size())});
  }
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
    violations->push_back({field, "must not hold control characters"});
  }
}

}  // namespace

v1::BundleEnvironment ToBundleEnvironment(int number, const Environment& environment,
                                          const Provenance& provenance) {
  v1::BundleEnvironment proto;
  proto.set_number(number);
  proto.set_text(environment.ToText());
  proto.set_gpu_model(environment.gpu_model);
  *proto.mutable_provenance() = ToProto(provenance);
  return proto;
}

BundleEnvironmentRow FromBundleEnvironment(const v1::BundleEnvironment& proto) {
  BundleEnvironmentRow row;
  row.text = proto.text();
  row.provenance = FromProto(proto.provenance());
  const absl::StatusOr<Environment> parsed = Environment::Parse(proto.text());
  if (!parsed.ok()) {
    row.violations.push_back({"text", std::string(parsed.status().message())});
  } else {
    row.environment = *parsed;
    row.environment.gpu_model = proto.gpu_model();
    if (Slug(proto.gpu_model()) != parsed->gpu_model) {
      row.violations.push_back(
          {"gpu_model", Concat("must be the model of text, ", parsed->gpu_model)});
    } else if (row.environment.ToText() != proto.text()) {
      row.violations.push_back(
          {"text", Concat("must be in its canonical form, ", row.environment.ToText())});
    }
  }
  CheckText("gpu_model", proto.gpu_model(), &row.violations);
  const Provenance& from = row.provenance;
  CheckText("provenance.driver_version", from.driver_version, &row.violations);
  CheckText("provenance.cuda_version", from.cuda_version, &row.violations);
  CheckText("provenance.gpu_uuid", from.gpu_uuid, &row.violations);
  CheckText("provenance.node", from.node, &row.violations);
  CheckText("provenance.cublaslt_build", from.cublaslt_build, &row.violations);
  CheckText("provenance.nvrtc_build", from.nvrtc_build, &row.violations);
  if (from.memory_bytes < 0) {
    row.violations.push_back(
        {"provenance.memory_bytes", Concat("must be at least 0, is ", from.memory_bytes)});
  }
  return row;
}

}  // namespace convtune::db::bundle
