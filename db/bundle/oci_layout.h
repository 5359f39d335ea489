// An OciBundle is the bundle in an OCI image layout: a folder with one image, which registries and
// Kubernetes' image volumes carry (https://github.com/opencontainers/image-spec, image-layout.md,
// version 1.0.0). The image has one layer, a tar archive with the one file tunings.bundle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct gzFile_s;

namespace convtune::db::bundle {

inline constexpr char kBundleInImage[] = "tunings.bundle";
inline constexpr char kOciArtifactType[] = "application/vnd.convtune.bundle.v1";

// True of a folder with the file oci-layout.
bool IsOciLayout(const std::string& folder);

// Writes the bundle as a layout, whole or not at all. The manifest's annotations name the GPUs,
// the versions of cuDNN, the number of tunings and the bundle's digest. REQUIRES: `folder` is not
// there. INVALID_ARGUMENT if it cannot be made, RESOURCE_EXHAUSTED or FAILED_PRECONDITION if the
// disk refuses what is written to it; the errors of BundleReader.
absl::Status WriteOciLayout(const std::string& bundle, const std::string& folder);

// Reads the bundle of a layout from its beginning to its end. Digests of blobs are not compared:
// a bundle has its own. Not thread-safe.
class OciBundle {
 public:
  // INVALID_ARGUMENT names the folder and what it lacks: one image, of one layer in tar, as it is
  // or in gzip, whose first file is tunings.bundle.
  static absl::StatusOr<std::unique_ptr<OciBundle>> Open(const std::string& folder);

  // Of the bundle, in bytes.
  int64_t size() const { return size_; }
  // The next bytes, at most `most`; empty at the end. DATA_LOSS if the layer ends before.
  absl::StatusOr<std::string> Read(size_t most);

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  OciBundle(std::string folder, std::unique_ptr<gzFile_s, Close> layer)
      : folder_(std::move(folder)), layer_(std::move(layer)) {}
  absl::Status ReadTarHeader();

  const std::string folder_;
  std::unique_ptr<gzFile_s, Close> layer_;
  int64_t size_ = 0;
  int64_t left_ = 0;
};

}  // namespace convtune::db::bundle
