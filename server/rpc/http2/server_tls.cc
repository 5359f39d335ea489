#include "server/rpc/http2/server_tls.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/tls_stats.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Create(const ServerTlsFiles& files) {
  auto tls = std::make_unique<ServerTls>(files);
  RETURN_IF_ERROR(tls->Reload());
  return tls;
}

absl::Status ServerTls::Reload() {
  MutexLock lock(mutex_);
  return ReloadLocked();
}

absl::Status ServerTls::ReloadLocked() {
  // Before reading: what is written meanwhile is another stamp's.
  std::string stamp = StampOf(files_);
  ASSIGN_OR_RETURN(texts_, ReadTlsFiles(files_));
  stamp_ = std::move(stamp);
  TlsStats::Global().certificate_end = absl::ToUnixSeconds(texts_.cert_end);
  fetched_ = false;
  return absl::OkStatus();
}

grpc_server_credentials* ServerTls::NewCredentials() {
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Fetch, this));
}

grpc_ssl_certificate_config_reload_status ServerTls::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto* tls = static_cast<ServerTls*>(self);
  MutexLock lock(tls->mutex_);
  if (const SteadyTime now = SteadyTime::Now(); now >= tls->next_look_) {
    tls->next_look_ = now + kBetweenLooks;
    // Files that are refused are read again at each look: a certificate may begin a moment later.
    if (const std::string stamp = StampOf(tls->files_); stamp != tls->stamp_) {
      const absl::Status read = tls->ReloadLocked();
      if (read.ok()) {
        log::Info("the TLS files have changed: new connections get them");
      } else if (stamp != std::exchange(tls->refused_stamp_, stamp)) {
        log::Warn("the TLS files have changed, and the ones before stay: $0",
                  std::string(read.message()));
      }
    }
  }
  if (tls->fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  tls->fetched_ = true;
  const grpc_ssl_pem_key_cert_pair pair{tls->texts_.key.c_str(), tls->texts_.cert.c_str()};
  *config = grpc_ssl_server_certificate_config_create(tls->texts_.client_ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace convtune::rpc::http2
