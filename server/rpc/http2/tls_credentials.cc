#include "server/rpc/http2/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/security/auth_context.h"
#include "proto/base/status_macros.h"
#include "server/logging/log.h"

namespace convtune::rpc::http2 {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

// Another one whenever a file is written, replaced or linked to elsewhere.
std::string StampOf(const ServerTlsFiles& files) {
  std::string stamp;
  for (const std::string& path : {files.cert, files.key, files.client_ca}) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) info = {};
    absl::StrAppend(&stamp, info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                    info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ");
  }
  return stamp;
}

// gRPC's context of a connection, as far as gates use it.
class CoreAuthContext final : public grpc::AuthContext {
 public:
  explicit CoreAuthContext(grpc_auth_context* context) : context_(context) {}

  bool IsPeerAuthenticated() const override {
    return grpc_auth_context_peer_is_authenticated(context_) != 0;
  }
  std::vector<grpc::string_ref> GetPeerIdentity() const override {
    return FindPropertyValues(GetPeerIdentityPropertyName());
  }
  std::string GetPeerIdentityPropertyName() const override {
    const char* name = grpc_auth_context_peer_identity_property_name(context_);
    return name == nullptr ? "" : name;
  }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    std::vector<grpc::string_ref> values;
    grpc_auth_property_iterator at =
        grpc_auth_context_find_properties_by_name(context_, name.c_str());
    while (const grpc_auth_property* property = grpc_auth_property_iterator_next(&at)) {
      values.emplace_back(property->value, property->value_length);
    }
    return values;
  }
  grpc::AuthPropertyIterator begin() const override { return NoProperties(); }
  grpc::AuthPropertyIterator end() const override { return NoProperties(); }
  void AddProperty(const std::string& key, const grpc::string_ref& value) override {
    grpc_auth_context_add_property(context_, key.c_str(), value.data(), value.size());
  }
  bool SetPeerIdentityPropertyName(const std::string& name) override {
    return grpc_auth_context_set_peer_identity_property_name(context_, name.c_str()) != 0;
  }

 private:
  struct NoProperties : grpc::AuthPropertyIterator {};

  grpc_auth_context* const context_;
};

grpc::string_ref RefTo(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// grpc::SslServerCredentials cannot be told of other files.
class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(std::shared_ptr<ServerTls> tls, std::shared_ptr<grpc::AuthMetadataProcessor> gate)
      : tls_(std::move(tls)),
        core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Fetch, this))) {
    if (gate != nullptr) SetAuthMetadataProcessor(gate);
  }
  ~Credentials() override { grpc_server_credentials_release(core_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& processor) override {
    using Gate = std::shared_ptr<grpc::AuthMetadataProcessor>;
    grpc_server_credentials_set_auth_metadata_processor(
        core_,
        {&Process, [](void* state) { delete static_cast<Gate*>(state); }, new Gate(processor)});
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  // gRPC calls it under a lock, for one handshake after the other.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* credentials = static_cast<Credentials*>(self);
    TlsTexts texts;
    if (!credentials->tls_->Newer(&credentials->version_, &texts)) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair{texts.key.c_str(), texts.cert.c_str()};
    *config = grpc_ssl_server_certificate_config_create(texts.client_ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  static void Process(void* state, grpc_auth_context* context, const grpc_metadata* metadata,
                      size_t count, grpc_process_auth_metadata_done_cb done, void* user_data) {
    grpc::AuthMetadataProcessor::InputMetadata input;
    for (size_t i = 0; i < count; ++i) {
      input.emplace(RefTo(metadata[i].key), RefTo(metadata[i].value));
    }
    CoreAuthContext connection(context);
    grpc::AuthMetadataProcessor::OutputMetadata consumed;
    grpc::AuthMetadataProcessor::OutputMetadata response;
    const grpc::Status status = (*static_cast<std::shared_ptr<grpc::AuthMetadataProcessor>*>(state))
                                    ->Process(input, &connection, &consumed, &response);
    done(user_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.error_code()),
         status.error_message().c_str());
  }

  const std::shared_ptr<ServerTls> tls_;
  uint64_t version_ = 0;
  grpc_server_credentials* const core_;  // the last: it uses the others
};

}  // namespace

absl::StatusOr<std::shared_ptr<ServerTls>> ServerTls::Create(const ServerTlsFiles& files) {
  auto tls = std::make_shared<ServerTls>(files);
  RETURN_IF_ERROR(tls->Reload());
  return tls;
}

absl::Status ServerTls::Reload() {
  MutexLock lock(mutex_);
  return ReloadLocked();
}

absl::Status ServerTls::ReloadLocked() {
  // Before reading: what is written meanwhile is another stamp's.
  stamp_ = StampOf(files_);
  ASSIGN_OR_RETURN(texts_, ReadTlsFiles(files_));
  ++version_;
  return absl::OkStatus();
}

bool ServerTls::Newer(uint64_t* version, TlsTexts* texts) {
  MutexLock lock(mutex_);
  if (const absl::Time now = absl::Now(); now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    if (StampOf(files_) != stamp_) {
      const absl::Status read = ReloadLocked();
      if (read.ok()) {
        log::Info("the TLS files have changed: new connections get them");
      } else {
        log::Warn("the TLS files have changed, and the ones before stay: $0",
                  std::string(read.message()));
      }
    }
  }
  if (*version == version_) return false;
  *version = version_;
  *texts = texts_;
  return true;
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(
    std::shared_ptr<ServerTls> tls, std::shared_ptr<grpc::AuthMetadataProcessor> gate) {
  return std::make_shared<Credentials>(std::move(tls), std::move(gate));
}

}  // namespace convtune::rpc::http2
