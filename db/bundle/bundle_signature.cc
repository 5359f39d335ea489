#include "db/bundle/bundle_signature.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Context = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

// A key that is encrypted is refused rather than asked for on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

// Reads with PEM_read_PrivateKey or PEM_read_PUBKEY.
template <typename Reader>
absl::StatusOr<Key> ReadKey(const std::string& path, const char* what, Reader read) {
  const std::unique_ptr<FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  Key key(read(file.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must be a PEM file with an Ed25519 ", what, " key"));
  }
  return key;
}

std::string RawPublicKey(const EVP_PKEY* key) {
  std::string raw(kKeyBytes, '\0');
  size_t size = raw.size();
  EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size);
  return raw;
}

std::string Signed(const v1::BundleTrailer& trailer) {
  return "convtune.bundle.v1\n" + trailer.sha256();
}

const unsigned char* Bytes(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool Verify(const v1::BundleTrailer& trailer) {
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(trailer.public_key()),
                                            trailer.public_key().size()));
  const Context context(EVP_MD_CTX_new());
  const std::string text = Signed(trailer);
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Bytes(trailer.signature()), trailer.signature().size(),
                          Bytes(text), text.size()) == 1;
}

}  // namespace

void FreeDigest::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

void FreeKey::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  // Both fail only where memory does, or where the library lacks SHA-256.
  if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
}

void Sha256::Update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Sha256::Digest() const {
  const Context copy(EVP_MD_CTX_new());
  std::string digest(32, '\0');
  unsigned int size = 0;
  if (copy == nullptr || EVP_MD_CTX_copy_ex(copy.get(), context_.get()) != 1 ||
      EVP_DigestFinal_ex(copy.get(), reinterpret_cast<unsigned char*>(digest.data()), &size) != 1) {
    std::abort();
  }
  return digest;
}

std::string DigestOfTexts(const std::vector<std::string>& texts) {
  Sha256 sha256;
  for (const std::string& text : texts) sha256.Update(absl::StrCat(text.size(), ":", text));
  return sha256.Digest();
}

absl::StatusOr<BundleSigningKey> BundleSigningKey::Read(const std::string& path) {
  ASSIGN_OR_RETURN(Key key, ReadKey(path, "private", PEM_read_PrivateKey));
  return BundleSigningKey(std::move(key));
}

absl::Status BundleSigningKey::Sign(v1::BundleTrailer* trailer) const {
  const Context context(EVP_MD_CTX_new());
  const std::string text = Signed(*trailer);
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Bytes(text), text.size()) != 1) {
    return absl::InternalError("signing the bundle failed");
  }
  trailer->set_public_key(RawPublicKey(key_.get()));
  trailer->set_signature(signature);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadBundlePublicKey(const std::string& path) {
  ASSIGN_OR_RETURN(const Key key, ReadKey(path, "public", PEM_read_PUBKEY));
  return RawPublicKey(key.get());
}

absl::Status CheckBundleSignature(const v1::BundleTrailer& trailer,
                                  const std::vector<std::string>& trusted,
                                  const std::string& bundle) {
  if (trailer.signature().empty() && trailer.public_key().empty()) {
    if (trusted.empty()) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(bundle, ": is not signed, and must be"));
  }
  const std::string name = absl::BytesToHexString(trailer.public_key());
  if (trailer.public_key().size() != kKeyBytes || trailer.signature().size() != kSignatureBytes ||
      !Verify(trailer)) {
    return absl::PermissionDeniedError(
        absl::StrCat(bundle, ": its signature is not one of the key that it names, ", name));
  }
  if (!trusted.empty() &&
      std::find(trusted.begin(), trusted.end(), trailer.public_key()) == trusted.end()) {
    return absl::PermissionDeniedError(
        absl::StrCat(bundle, ": is signed by ", name, ", a key that is not trusted"));
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::bundle
