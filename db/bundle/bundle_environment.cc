#include "db/bundle/bundle_environment.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kMaxText = 256;

absl::Status CheckText(const char* field, const std::string& text) {
  if (text.size() > kMaxText) {
    return ViolationError(
        {field, Concat("must have at most ", kMaxText, " bytes, has ", text.size())});
  }
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
    return ViolationError({field, "must not hold control characters"});
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::BundleEnvironment& proto, Environment* environment) {
  absl::StatusOr<Environment> parsed = Environment::Parse(proto.text());
  if (!parsed.ok()) return ViolationError({"text", std::string(parsed.status().message())});
  *environment = *std::move(parsed);
  const std::string slug = std::exchange(environment->gpu_model, proto.gpu_model());
  if (Slug(proto.gpu_model()) != slug) {
    return ViolationError({"gpu_model", Concat("must be the model of text, ", slug)});
  }
  if (const std::string text = environment->ToText(); text != proto.text()) {
    return ViolationError({"text", Concat("must be in its canonical form, ", text)});
  }
  const v1::Provenance& from = proto.provenance();
  RETURN_IF_ERROR(CheckText("gpu_model", proto.gpu_model()));
  RETURN_IF_ERROR(CheckText("provenance.driver_version", from.driver_version()));
  RETURN_IF_ERROR(CheckText("provenance.cuda_version", from.cuda_version()));
  RETURN_IF_ERROR(CheckText("provenance.gpu_uuid", from.gpu_uuid()));
  RETURN_IF_ERROR(CheckText("provenance.node", from.node()));
  RETURN_IF_ERROR(CheckText("provenance.cublaslt_build", from.cublaslt_build()));
  RETURN_IF_ERROR(CheckText("provenance.nvrtc_build", from.nvrtc_build()));
  if (from.memory_bytes() >= 0) return absl::OkStatus();
  return ViolationError(
      {"provenance.memory_bytes", Concat("must be at least 0, is ", from.memory_bytes())});
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
  row.status = Check(proto, &row.environment);
  return row;
}

}  // namespace convtune::db::bundle
