// A BundleImport takes a bundle that comes piece by piece: nothing of a
// damaged one, and what keeps to the rules of a whole one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/bundle_service.pb.h"
#include "db/bundle/bundle_merge.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {

// Not thread-safe. The pieces wait in a file without a name below the state
// directory, which goes with the object.
class BundleImport {
 public:
  // UNAVAILABLE or RESOURCE_EXHAUSTED: the state directory cannot be written.
  static absl::StatusOr<std::unique_ptr<BundleImport>> Create(const ServiceOptions& options);
  ~BundleImport();
  BundleImport(const BundleImport&) = delete;
  BundleImport& operator=(const BundleImport&) = delete;

  // RESOURCE_EXHAUSTED: the disk is full, or the bundle is longer than one may
  // be. INVALID_ARGUMENT: it does not begin as a bundle does.
  absl::Status Append(std::string_view piece);

  // Checks the whole bundle, and then takes row after row what is better, in
  // one transaction. Rows that break a rule are left out; the response has how many, and
  // the rules. May be called once. INVALID_ARGUMENT: damaged, in BundleReader's words.
  // PERMISSION_DENIED: as CheckBundleSignature. DATA_LOSS: the store.
  absl::StatusOr<v1::ImportBundleResponse> Finish();

 private:
  BundleImport(const ServiceOptions& options, int fd) : options_(options), fd_(fd) {}
  absl::StatusOr<v1::ImportBundleResponse> Take(v1::ImportBundleResponse* response);

  const ServiceOptions options_;
  const int fd_;
  int64_t bytes_ = 0;
  bool head_checked_ = false;
};

}  // namespace convtune::rpc::services
