// Requests as they come off the wire: reading, and every rule of the validator.
#include "convtune/v1/tuning_service.pb.h"
#include "server/rpc/messages/request_validator.h"
#include "tests/fuzz/fuzz.h"

namespace {

template <typename Request>
void Check(const std::string& bytes) {
  Request request;
  if (!request.ParseFromString(bytes)) return;
  std::vector<convtune::Violation> violations;
  const bool valid = convtune::rpc::messages::Validate(request, &violations).has_value();
  convtune::fuzz::Require(valid == violations.empty());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes = convtune::fuzz::ToString(data + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      Check<convtune::v1::BatchGetRequest>(bytes);
      break;
    case 1:
      Check<convtune::v1::CreateTuningJobRequest>(bytes);
      break;
    case 2:
      Check<convtune::v1::ListTuningsRequest>(bytes);
      break;
    case 3:
      Check<convtune::v1::PinRequest>(bytes);
      break;
    default:
      Check<convtune::v1::DeleteTuningRequest>(bytes);
      break;
  }
  return 0;
}
