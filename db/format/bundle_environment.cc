#include "db/format/bundle_environment.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "proto/base/strings.h"

namespace convtune {
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
  proto.set_driver_version(provenance.driver_version);
  proto.set_cuda_version(provenance.cuda_version);
  proto.set_gpu_uuid(provenance.gpu_uuid);
  proto.set_node(provenance.node);
  proto.set_memory_bytes(provenance.memory_bytes);
  return proto;
}

BundleEnvironmentRow FromBundleEnvironment(const v1::BundleEnvironment& proto) {
  BundleEnvironmentRow row;
  row.text = proto.text();
  row.provenance = {proto.driver_version(), proto.cuda_version(), proto.gpu_uuid(), proto.node(),
                    proto.memory_bytes()};
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
  CheckText("driver_version", proto.driver_version(), &row.violations);
  CheckText("cuda_version", proto.cuda_version(), &row.violations);
  CheckText("gpu_uuid", proto.gpu_uuid(), &row.violations);
  CheckText("node", proto.node(), &row.violations);
  if (proto.memory_bytes() < 0) {
    row.violations.push_back(
        {"memory_bytes", Concat("must be at least 0, is ", proto.memory_bytes())});
  }
  return row;
}

}  // namespace convtune
