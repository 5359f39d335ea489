#include "db/bundle/oci_layout.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::bundle {
namespace {

namespace fs = std::filesystem;
using Document = nlohmann::ordered_json;

constexpr char kManifestType[] = "application/vnd.oci.image.manifest.v1+json";
constexpr char kLayerType[] = "application/vnd.oci.image.layer.v1.tar";
constexpr size_t kTarBlock = 512;
constexpr size_t kPieceBytes = 1 << 20;
// No document of a layout with one image comes near it.
constexpr size_t kMaxDocument = 4 << 20;

// The header of a tar archive's file, POSIX.1-1988 (ustar).
std::string TarHeader(int64_t size) {
  std::string header(kTarBlock, '\0');
  const auto put = [&header](size_t place, std::string_view text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<ptrdiff_t>(place));
  };
  put(0, kBundleInImage);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, absl::StrFormat("%011o", size));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  int sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, absl::StrFormat("%06o", sum));
  header[154] = '\0';
  return header;
}

// A file of blobs/sha256 while it is written; Finish names it by its digest.
class Blob {
 public:
  explicit Blob(fs::path folder)
      : folder_(std::move(folder)),
        file_(open((folder_ / "new").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (!file_.valid()) status_ = FileError(folder_, "creating a file in it");
  }
  void Write(std::string_view bytes) {
    if (status_.ok() && !WriteAll(file_.get(), bytes)) status_ = FileError(folder_, "writing");
    sha256_.Update(bytes);
    size_ += static_cast<int64_t>(bytes.size());
  }
  // Returns the OCI descriptor of the blob: media type, digest and size.
  absl::StatusOr<Document> Finish(const char* type) {
    const std::string digest = absl::BytesToHexString(sha256_.Digest());
    const std::string path = folder_ / digest;
    RETURN_IF_ERROR(status_);
    RETURN_IF_ERROR(PutInPlace(file_.get(), folder_ / "new", path));
    return Document{{"mediaType", type}, {"digest", "sha256:" + digest}, {"size", size_}};
  }

 private:
  const fs::path folder_;
  const UniqueFd file_;
  Sha256 sha256_;
  int64_t size_ = 0;
  absl::Status status_;
};

absl::StatusOr<Document> WriteBlob(const fs::path& folder, const char* type,
                                   const Document& document) {
  Blob blob(folder);
  blob.Write(document.dump());
  return blob.Finish(type);
}

absl::StatusOr<Document> Annotations(const std::string& bundle) {
  ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(bundle));
  std::set<std::string> gpus, cudnns;
  RETURN_IF_ERROR(ReadWholeBundle(reader.get(), {}, [&](const BundleEntry& entry) {
    gpus.insert(entry.environment->environment.gpu_model);
    cudnns.insert(entry.environment->environment.cudnn.ToText());
  }));
  return Document{{"org.opencontainers.image.title", kBundleInImage},
                  {"convtune.gpus", absl::StrJoin(gpus, ",")},
                  {"convtune.cudnns", absl::StrJoin(cudnns, ",")},
                  {"convtune.tunings", Concat(reader->trailer().tuning_count())},
                  {"convtune.sha256", absl::BytesToHexString(reader->trailer().sha256())}};
}

absl::StatusOr<Document> WriteLayer(const std::string& bundle, const fs::path& blobs) {
  std::ifstream file(bundle, std::ios::binary | std::ios::ate);
  const int64_t size = file.tellg();
  file.seekg(0);
  Blob layer(blobs);
  layer.Write(TarHeader(size));
  std::string piece(kPieceBytes, '\0');
  int64_t read = 0;
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    layer.Write({piece.data(), static_cast<size_t>(file.gcount())});
    read += file.gcount();
  }
  if (read != size) return absl::DataLossError(Concat(bundle, ": cannot be read to its end"));
  // The file ends at a whole block, the archive with two that are empty.
  const size_t rest = static_cast<size_t>(size) % kTarBlock;
  layer.Write(std::string((rest > 0 ? kTarBlock - rest : 0) + 2 * kTarBlock, '\0'));
  return layer.Finish(kLayerType);
}

absl::Status WriteFolder(const std::string& bundle, const fs::path& folder) {
  const fs::path blobs = folder / "blobs/sha256";
  std::error_code error;
  fs::create_directories(blobs, error);
  if (error) return absl::InvalidArgumentError(Concat(folder.string(), ": ", error.message()));
  ASSIGN_OR_RETURN(const Document annotations, Annotations(bundle));
  ASSIGN_OR_RETURN(const Document layer, WriteLayer(bundle, blobs));
  const Document config = {{"architecture", "amd64"},
                           {"os", "linux"},
                           {"rootfs", {{"type", "layers"}, {"diff_ids", {layer["digest"]}}}}};
  ASSIGN_OR_RETURN(const Document config_blob,
                   WriteBlob(blobs, "application/vnd.oci.image.config.v1+json", config));
  ASSIGN_OR_RETURN(const Document manifest, WriteBlob(blobs, kManifestType,
                                                      {{"schemaVersion", 2},
                                                       {"mediaType", kManifestType},
                                                       {"artifactType", kOciArtifactType},
                                                       {"config", config_blob},
                                                       {"layers", Document::array({layer})},
                                                       {"annotations", annotations}}));
  RETURN_IF_ERROR(SyncFolderOf(blobs));
  const Document index = {{"schemaVersion", 2}, {"manifests", Document::array({manifest})}};
  RETURN_IF_ERROR(ReplaceFile(folder / "index.json", index.dump()));
  return ReplaceFile(folder / "oci-layout", Document{{"imageLayoutVersion", "1.0.0"}}.dump());
}

// Reads a JSON file of the layout. A file that is missing or is no JSON gives a value for which
// is_discarded() is true.
Document ReadJson(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return Document(Document::value_t::discarded);
  std::string text(kMaxDocument, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  return Document::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns the path of the blob that the only element of `list` describes; an empty path if the
// document has no such list, or the list has not exactly one element.
fs::path OnlyBlob(const fs::path& folder, const Document& document, const char* list) {
  const Document::json_pointer place(Concat("/", list, "/0/digest"));
  if (!document.contains(place) || document[list].size() != 1) return {};
  if (!document[place].is_string()) return {};
  const auto digest = document[place].get<std::string>();
  constexpr std::string_view kPrefix = "sha256:";
  if (!digest.starts_with(kPrefix) || digest.size() != kPrefix.size() + 64) return {};
  const std::string name = digest.substr(kPrefix.size());
  if (name.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
  return folder / "blobs/sha256" / name;
}

}  // namespace

bool IsOciLayout(const std::string& folder) {
  std::error_code error;
  return fs::exists(fs::path(folder) / "oci-layout", error);
}

absl::Status WriteOciLayout(const std::string& bundle, const std::string& folder) {
  fs::path target = fs::path(folder);
  if (!target.has_filename()) target = target.parent_path();  // "DIR/"
  const std::string partial = Concat(target.string(), ".partial-", getpid());
  absl::Status written = WriteFolder(bundle, partial);
  std::error_code error;
  if (written.ok()) {
    fs::rename(partial, target, error);
    written = error ? absl::InvalidArgumentError(Concat(folder, ": ", error.message()))
                    : SyncFolderOf(target);
  }
  if (!written.ok()) fs::remove_all(partial, error);
  // UNAVAILABLE would be a daemon that does not answer.
  return absl::IsUnavailable(written) ? absl::FailedPreconditionError(written.message()) : written;
}

void OciBundle::Close::operator()(gzFile_s* file) const { gzclose(file); }

absl::StatusOr<std::unique_ptr<OciBundle>> OciBundle::Open(const std::string& folder) {
  const auto refuse = [&folder](std::string_view rule) {
    return absl::InvalidArgumentError(Concat(folder, ": ", rule));
  };
  const fs::path manifest =
      OnlyBlob(folder, ReadJson(fs::path(folder) / "index.json"), "manifests");
  if (manifest.empty()) return refuse("must hold one image");
  const Document image = ReadJson(manifest);
  if (image.is_object() && image.contains("manifests")) {
    return refuse(Concat("must hold one image, but sha256:", manifest.filename().string(),
                         " is a list of images, such as one for each platform"));
  }
  const fs::path layer = OnlyBlob(folder, image, "layers");
  if (layer.empty()) return refuse("its image must have one layer");
  std::error_code error;
  if (!fs::is_regular_file(layer, error)) return refuse("its layer must be a file");
  std::unique_ptr<gzFile_s, Close> file(gzopen(layer.c_str(), "rb"));
  if (file == nullptr) return refuse(Concat("its layer cannot be read: ", layer.string()));
  std::unique_ptr<OciBundle> bundle(new OciBundle(folder, std::move(file)));
  RETURN_IF_ERROR(bundle->ReadTarHeader());
  return bundle;
}

absl::Status OciBundle::ReadTarHeader() {
  char header[kTarBlock];
  uint64_t size = 0;
  const bool is_tar = gzread(layer_.get(), header, kTarBlock) == static_cast<int>(kTarBlock) &&
                      std::memcmp(header + 257, "ustar", 5) == 0;
  const std::string name(header, strnlen(header, 100));
  if (!is_tar || !(name == kBundleInImage || name == Concat("./", kBundleInImage)) ||
      std::strchr("01234567", header[124]) == nullptr ||
      sscanf(std::string(header + 124, 12).c_str(), "%lo", &size) != 1) {
    return absl::InvalidArgumentError(
        Concat(folder_, ": its layer must be a tar archive, as it is or in gzip, that begins with ",
               kBundleInImage));
  }
  size_ = left_ = static_cast<int64_t>(size);
  return absl::OkStatus();
}

absl::StatusOr<std::string> OciBundle::Read(size_t most) {
  std::string piece(std::min<size_t>(most, static_cast<size_t>(left_)), '\0');
  if (piece.empty()) return piece;
  const int read = gzread(layer_.get(), piece.data(), static_cast<unsigned>(piece.size()));
  if (read <= 0) return absl::DataLossError(Concat(folder_, ": its layer ends too early"));
  piece.resize(static_cast<size_t>(read));
  left_ -= read;
  return piece;
}

}  // namespace convtune::db::bundle
