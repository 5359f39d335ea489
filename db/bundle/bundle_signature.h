// Sha256 and Ed25519 signatures, by OpenSSL. Keys are PEM files as `openssl genpkey
// -algorithm ed25519` and `openssl pkey -pubout` write them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/bundle.pb.h"

struct evp_md_ctx_st;
struct evp_pkey_st;

namespace convtune::db::bundle {

struct FreeDigest {
  void operator()(evp_md_ctx_st* context) const;
};
struct FreeKey {
  void operator()(evp_pkey_st* key) const;
};

// Not thread-safe.
class Sha256 {
 public:
  Sha256();

  void Update(std::string_view bytes);
  // 32 bytes, of all bytes so far; more may follow.
  std::string Digest() const;

 private:
  std::unique_ptr<evp_md_ctx_st, FreeDigest> context_;
};

// The SHA-256 of texts, each behind its length: no two lists have the same bytes.
std::string DigestOfTexts(const std::vector<std::string>& texts);

// A private key. Move-only.
class BundleSigningKey {
 public:
  // INVALID_ARGUMENT names the file: it cannot be read, or is no Ed25519 key.
  static absl::StatusOr<BundleSigningKey> Read(const std::string& path);

  // Sets public_key and signature, over sha256.
  absl::Status Sign(v1::BundleTrailer* trailer) const;

 private:
  explicit BundleSigningKey(std::unique_ptr<evp_pkey_st, FreeKey> key) : key_(std::move(key)) {}
  std::unique_ptr<evp_pkey_st, FreeKey> key_;
};

// The 32 bytes of a public key. INVALID_ARGUMENT as above.
absl::StatusOr<std::string> ReadBundlePublicKey(const std::string& path);

// Checks a trailer whose sha256 was compared already. A signature that is there
// must fit its key. With `trusted` (32 bytes each) not empty there must be one,
// by one of them. PERMISSION_DENIED says what is wrong, behind the bundle's name.
absl::Status CheckBundleSignature(const v1::BundleTrailer& trailer,
                                  const std::vector<std::string>& trusted,
                                  const std::string& bundle);

}  // namespace convtune::db::bundle
