#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/rpc/services/bundle_export.h"
#include "server/rpc/services/bundle_import.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr size_t kMaxWaiting = 64;
constexpr int kMaxImports = 4;

grpc::Status TooBusy() {
  return messages::ToGrpcStatus(
      absl::ResourceExhaustedError("too many bundles are on their way; try again"));
}

// One piece is made and written at a time. Between its operations nothing
// refers to the reactor but gRPC, so that OnDone can delete it.
class ExportReactor : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  ExportReactor(tuner::Tuner* tuner, WorkQueue* queue, CallbackServerContext* context)
      : tuner_(tuner), queue_(queue), log_("convtune.v1.BundleService/ExportBundle", context) {}

  void Start(const ByteBuffer& in) {
    const grpc::Status read = CatchAll(
        "ExportBundle", [&] { return ReadRequest<v1::ExportBundleRequest>(in, &request_); });
    if (!read.ok()) {
      End(read);
      return;
    }
    PostNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      PostNext();
    } else {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
    }
  }
  void OnDone() override { delete this; }

 private:
  void PostNext() {
    if (!queue_->Post([this] { WriteNext(); })) End(TooBusy());
  }

  void WriteNext() {
    bool ended = false;
    const grpc::Status status = CatchAll("ExportBundle", [&] {
      if (bundle_ == nullptr) {
        bundle_ = std::make_unique<BundleExport>(tuner_, request_->environment(),
                                                 /*with_samples=*/!request_->omit_samples(),
                                                 request_->include_simulated());
      }
      absl::StatusOr<std::string> piece = bundle_->NextPiece();
      if (!piece.ok()) return messages::ToGrpcStatus(piece.status());
      ended = piece->empty();
      v1::ExportBundleResponse response;
      response.set_chunk(*std::move(piece));
      return WriteMessage(response, &message_);
    });
    if (!status.ok() || ended) {
      End(status);
    } else {
      StartWrite(&message_);
    }
  }

  void End(const grpc::Status& status) {
    log_.Finished(status);
    Finish(status);
  }

  tuner::Tuner* const tuner_;
  WorkQueue* const queue_;
  const RequestLog log_;
  std::optional<v1::ExportBundleRequest> request_;
  std::unique_ptr<BundleExport> bundle_;
  ByteBuffer message_;
};

// One piece is read and stored at a time.
class ImportReactor : public grpc::ServerReadReactor<ByteBuffer> {
 public:
  ImportReactor(const ServiceOptions& options, WorkQueue* queue, std::atomic<int>* running,
                CallbackServerContext* context, ByteBuffer* out)
      : options_(options),
        queue_(queue),
        running_(running),
        context_(context),
        out_(out),
        log_("convtune.v1.BundleService/ImportBundle", context) {}

  void Start() {
    if (++*running_ > kMaxImports) {
      End(TooBusy());
    } else {
      StartRead(&message_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!queue_->Post([this, ok] { ok ? Store() : Import(); })) End(TooBusy());
  }
  void OnDone() override {
    --*running_;
    delete this;
  }

 private:
  void Store() {
    const grpc::Status status = CatchAll("ImportBundle", [&]() -> grpc::Status {
      v1::ImportBundleRequest request;
      grpc::Status read = ReadMessage(message_, &request);
      if (!read.ok()) return read;
      grpc::Status opened = Open();
      return opened.ok() ? messages::ToGrpcStatus(bundle_->Append(request.chunk())) : opened;
    });
    if (status.ok()) {
      StartRead(&message_);
    } else {
      End(status);
    }
  }

  grpc::Status Open() {
    if (bundle_ != nullptr) return grpc::Status::OK;
    absl::StatusOr<std::unique_ptr<BundleImport>> bundle = BundleImport::Create(options_);
    if (!bundle.ok()) return messages::ToGrpcStatus(bundle.status());
    bundle_ = *std::move(bundle);
    return grpc::Status::OK;
  }

  void Import() {
    if (context_->IsCancelled()) {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
      return;
    }
    End(CatchAll("ImportBundle", [&]() -> grpc::Status {
      grpc::Status opened = Open();
      if (!opened.ok()) return opened;
      const absl::StatusOr<v1::ImportBundleResponse> response = bundle_->Finish();
      grpc::Status status =
          response.ok() ? WriteMessage(*response, out_) : messages::ToGrpcStatus(response.status());
      const v1::ImportBundleRequest request;  // without the bundle
      log_.Audit(request, nullptr, response.ok() ? &*response : nullptr, status);
      return status;
    }));
  }

  void End(const grpc::Status& status) {
    log_.Finished(status);
    Finish(status);
  }

  const ServiceOptions& options_;
  WorkQueue* const queue_;
  std::atomic<int>* const running_;
  CallbackServerContext* const context_;
  ByteBuffer* const out_;
  const RequestLog log_;
  ByteBuffer message_;
  std::unique_ptr<BundleImport> bundle_;
};

class BundleService final : public RawService {
 public:
  explicit BundleService(const ServiceOptions& options)
      : RawService(kBundleServiceName),
        options_(options),
        exports_(kMaxWaiting),
        imports_(kMaxWaiting) {
    Add("ExportBundle", Type::SERVER_STREAMING,
        new ServerStreamingHandler([this](CallbackServerContext* context, const ByteBuffer* in) {
          auto* reactor = new ExportReactor(options_.tuner, &exports_, context);
          reactor->Start(*in);
          return reactor;
        }));
    Add("ImportBundle", Type::CLIENT_STREAMING,
        new ClientStreamingHandler([this](CallbackServerContext* context, ByteBuffer* out) {
          auto* reactor = new ImportReactor(options_, &imports_, &running_imports_, context, out);
          reactor->Start();
          return reactor;
        }));
  }

 private:
  const ServiceOptions options_;
  std::atomic<int> running_imports_{0};
  WorkQueue exports_;
  WorkQueue imports_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewBundleService(const ServiceOptions& options) {
  return std::make_unique<BundleService>(options);
}

}  // namespace convtune::rpc::services
