#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "db/bundle/bundle_reader.h"
#include "db/bundle/bundle_writer.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr size_t kMaxWaiting = 64;
constexpr int kMaxImports = 4;
constexpr size_t kPieceBytes = 256 << 10;
constexpr int kPageSize = 1000;

grpc::Status TooBusy() {
  return messages::ToGrpcStatus(
      absl::ResourceExhaustedError("too many bundles are on their way; try again"));
}

grpc::Status CallerGone() { return {grpc::StatusCode::CANCELLED, "the caller went away"}; }

// A BundleCall is one call whose pieces are worked on one at a time, on a queue. While it waits for
// gRPC nothing else refers to it, so that OnDone can delete it.
template <typename Reactor>
class BundleCall : public Reactor {
 public:
  void OnDone() override { delete this; }

 protected:
  // `method` is the full name, and outlives the call.
  BundleCall(std::string_view method, WorkQueue* queue, CallbackServerContext* context)
      : method_(method), queue_(queue), log_(method, context) {}

  // Has the queue do `work`, which returns a grpc::Status: OK once it has started the next
  // operation or ended the call, else the call ends with it.
  template <typename Work>
  void Post(Work work) {
    const auto piece = [this, work] {
      if (const grpc::Status status = CatchAll(method_, work); !status.ok()) End(status);
    };
    if (!queue_->Post(piece)) End(TooBusy());
  }

  void End(const grpc::Status& status) {
    log_.Finished(status);
    GiveBack();
    this->Finish(status);
  }
  // Gives back what the call took from the others: before its client has the end, and may begin the
  // next call.
  virtual void GiveBack() {}

  const std::string_view method_;
  WorkQueue* const queue_;
  const RequestLog log_;
  ByteBuffer message_;  // gRPC's while it is written or read
};

// Holds a page of keys and one piece, no more.
class ExportCall final : public BundleCall<grpc::ServerWriteReactor<ByteBuffer>> {
 public:
  ExportCall(tuner::Tuner* tuner, WorkQueue* queue, CallbackServerContext* context)
      : BundleCall("convtune.v1.BundleService/ExportBundle", queue, context), tuner_(tuner) {}

  void Start(const ByteBuffer& in) {
    const grpc::Status read =
        CatchAll(method_, [&] { return ReadRequest<v1::ExportBundleRequest>(in, &request_); });
    if (read.ok()) {
      PostNext();
    } else {
      End(read);
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      PostNext();
    } else {
      End(CallerGone());
    }
  }

 private:
  void PostNext() {
    Post([this]() -> grpc::Status {
      if (const absl::Status made = MakePiece(); !made.ok()) return messages::ToGrpcStatus(made);
      if (piece_.empty()) {
        End(grpc::Status::OK);
        return grpc::Status::OK;
      }
      v1::ExportBundleResponse response;
      response.set_chunk(std::exchange(piece_, std::string()));
      grpc::Status written = WriteMessage(response, &message_);
      if (written.ok()) StartWrite(&message_);
      return written;
    });
  }

  // Puts the next bytes into piece_: at least kPieceBytes until the end, where there are none.
  // DATA_LOSS: a row of the database is damaged.
  absl::Status MakePiece() {
    if (!writer_.has_value()) {
      known_ = tuner_->ListEnvironments();
      writer_.emplace(
          [this](std::string_view bytes) {
            piece_ += bytes;
            return absl::OkStatus();
          },
          /*with_samples=*/!request_->omit_samples());
      RETURN_IF_ERROR(NextPage());
    }
    while (!finished_ && piece_.size() < kPieceBytes) {
      if (next_ < page_.tunings.size()) {
        RETURN_IF_ERROR(AddTuning(page_.tunings[next_++]->tuning.key.Whole()));
      } else if (page_.more) {
        RETURN_IF_ERROR(NextPage());
      } else {
        RETURN_IF_ERROR(writer_->Finish());
        finished_ = true;
      }
    }
    return absl::OkStatus();
  }

  absl::Status NextPage() {
    const TuningKey after = page_.more ? page_.last() : TuningKey();
    ASSIGN_OR_RETURN(page_, tuner_->ListTunings(request_->environment(), kPageSize, after, ""));
    next_ = 0;
    return absl::OkStatus();
  }

  absl::Status AddTuning(const TuningKey& key) {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(key.problem_text));
    absl::StatusOr<Tuning> tuning = tuner_->GetTuning(key.environment_text, problem);
    // It may have been deleted since, and another alignment's found in its place.
    if (absl::IsNotFound(tuning.status()) || (tuning.ok() && !(tuning->key == key))) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(tuning.status());
    Environment environment = Environment::Parse(key.environment_text).value_or(Environment());
    // As the driver names it, which the text does not say.
    environment.gpu_model = messages::FindEnvironment(known_, key.environment_text).gpu_model();
    // Without an environment, those of simulated GPUs only if they are asked for.
    const bool is_wanted = !environment.simulated() || request_->include_simulated() ||
                           !request_->environment().empty();
    return is_wanted ? writer_->Add(*tuning, environment) : absl::OkStatus();
  }

  tuner::Tuner* const tuner_;
  std::optional<v1::ExportBundleRequest> request_;
  std::vector<v1::Environment> known_;
  std::optional<db::bundle::BundleWriter> writer_;  // nothing before the first piece
  lookup::TuningPage page_;
  size_t next_ = 0;  // in page_
  bool finished_ = false;
  std::string piece_;
};

// A damaged upload is its sender's fault: DATA_LOSS is said of the store alone, which a backup
// mends.
absl::Status UploadStatus(const absl::Status& status) {
  return absl::IsDataLoss(status) ? absl::InvalidArgumentError(status.message()) : status;
}

// Takes nothing of a damaged bundle, and of a whole one what keeps the rules. The pieces wait in a
// file without a name below the state directory.
class ImportCall final : public BundleCall<grpc::ServerReadReactor<ByteBuffer>> {
 public:
  // `running` counts the imports.
  ImportCall(const ServiceOptions& options, WorkQueue* queue, std::atomic<int>* running,
             CallbackServerContext* context, ByteBuffer* out)
      : BundleCall("convtune.v1.BundleService/ImportBundle", queue, context),
        options_(options),
        running_(running),
        context_(context),
        out_(out) {}

  void Start() {
    if (++*running_ > kMaxImports) {
      End(TooBusy());
    } else {
      StartRead(&message_);
    }
  }

  void OnReadDone(bool ok) override {
    Post([this, ok] { return ok ? Keep() : Import(); });
  }

 private:
  void GiveBack() override { --*running_; }

  grpc::Status Keep() {
    v1::ImportBundleRequest request;
    grpc::Status read = ReadMessage(message_, &request);
    if (read.ok()) read = messages::ToGrpcStatus(Append(request.chunk()));
    if (read.ok()) StartRead(&message_);
    return read;
  }

  grpc::Status Import() {
    if (context_->IsCancelled()) return CallerGone();
    if (const absl::Status opened = Open(); !opened.ok()) return messages::ToGrpcStatus(opened);
    const absl::StatusOr<v1::ImportBundleResponse> response = TakeBundle();
    grpc::Status status =
        response.ok() ? WriteMessage(*response, out_) : messages::ToGrpcStatus(response.status());
    const v1::ImportBundleRequest request;  // without the bundle
    log_.Audit(request, nullptr, response.ok() ? &*response : nullptr, status);
    if (status.ok()) End(status);
    return status;
  }

  // UNAVAILABLE or RESOURCE_EXHAUSTED: the state directory cannot be written.
  absl::Status Open() {
    if (file_.valid()) return absl::OkStatus();
    std::string path = options_.state_dir + "/import-XXXXXX";
    file_ = UniqueFd(mkostemp(path.data(), O_CLOEXEC));
    if (!file_.valid()) return FileError(options_.state_dir, "a bundle cannot be kept there");
    unlink(path.c_str());
    return absl::OkStatus();
  }

  // RESOURCE_EXHAUSTED: the disk is full, or the bundle is longer than one may be.
  // INVALID_ARGUMENT: it does not begin as a bundle does.
  absl::Status Append(std::string_view piece) {
    RETURN_IF_ERROR(Open());
    bytes_ += static_cast<int64_t>(piece.size());
    if (bytes_ > http2::kMaxBundleBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("chunk: a bundle may have at most ", http2::kMaxBundleBytes, " bytes"));
    }
    if (!WriteAll(file_.get(), piece)) {
      return FileError(options_.state_dir, "the bundle cannot be kept there");
    }
    // What begins with another kind of file's bytes does not fill the disk first.
    const bool is_first = bytes_ == static_cast<int64_t>(piece.size());
    const std::string_view head = piece.substr(0, db::bundle::kBundleMagic.size());
    return is_first && !db::bundle::kBundleMagic.starts_with(head) ? OpenReader().status()
                                                                   : absl::OkStatus();
  }

  // Of a copy of the descriptor, which is closed with the reader.
  absl::StatusOr<std::unique_ptr<db::bundle::BundleReader>> OpenReader() {
    const int copy = fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("bundle: ", std::strerror(errno)));
    }
    auto reader = db::bundle::BundleReader::FromDescriptor(copy, "bundle");
    if (!reader.ok()) return UploadStatus(reader.status());
    return reader;
  }

  // Checks the whole bundle, and then takes row after row what is better, in one transaction. Rows
  // that break a rule are left out; the response has how many, and the rules. INVALID_ARGUMENT:
  // damaged, in BundleReader's words. PERMISSION_DENIED: as CheckBundleSignature. DATA_LOSS: the
  // store.
  absl::StatusOr<v1::ImportBundleResponse> TakeBundle() {
    v1::ImportBundleResponse response;
    {
      // Before anything of it gets near the database.
      ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader, OpenReader());
      RETURN_IF_ERROR(UploadStatus(reader->CheckBytes()));
      RETURN_IF_ERROR(db::bundle::CheckBundleSignature(reader->trailer(), options_.bundle_keys,
                                                       reader->name()));
      response.set_tuning_count(reader->trailer().tuning_count());
      response.set_signer(absl::BytesToHexString(reader->trailer().public_key()));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader, OpenReader());
    const absl::Time now = options_.clock->Now();
    db::bundle::BundleEntry entry;
    const auto next = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
      while (true) {
        const absl::StatusOr<bool> more = reader->Next(&entry);
        if (!more.ok()) return UploadStatus(more.status());
        if (!*more) return std::nullopt;
        auto tuning = db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
        if (entry.environment->environment.simulated()) {
          response.set_simulated_count(response.simulated_count() + 1);
        }
        if (tuning.ok()) {
          return db::TuningRecord{*std::move(tuning), entry.environment->environment};
        }
        db::bundle::AddRefusal(entry, tuning.status(), &response);
      }
    };
    ASSIGN_OR_RETURN(const v1::ImportBundleResponse counts, options_.tuner->ImportTunings(next));
    response.MergeFrom(counts);
    return response;
  }

  const ServiceOptions& options_;
  std::atomic<int>* const running_;
  CallbackServerContext* const context_;
  ByteBuffer* const out_;
  UniqueFd file_;
  int64_t bytes_ = 0;
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
          auto* call = new ExportCall(options_.tuner, &exports_, context);
          call->Start(*in);
          return call;
        }));
    Add("ImportBundle", Type::CLIENT_STREAMING,
        new ClientStreamingHandler([this](CallbackServerContext* context, ByteBuffer* out) {
          auto* call = new ImportCall(options_, &imports_, &running_imports_, context, out);
          call->Start();
          return call;
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
