#include "server/rpc/reflection.h"

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc {

// Generated: a FileDescriptorSet of the API, with comments.
std::string_view ApiDescriptors();

namespace {

namespace wire = grpc::reflection::v1;
using google::protobuf::FileDescriptorProto;

// Files by what is asked of them. Immutable.
class ApiFiles {
 public:
  static const ApiFiles& Get() {
    static const auto* const files = new ApiFiles;
    return *files;
  }

  void Answer(const wire::ServerReflectionRequest& request,
              wire::ServerReflectionResponse* response) const {
    response->set_valid_host(request.host());
    *response->mutable_original_request() = request;
    FileDescriptorProto file;
    bool found = false;
    switch (request.message_request_case()) {
      case wire::ServerReflectionRequest::kListServices:
        for (const std::string& name : services_) {
          response->mutable_list_services_response()->add_service()->set_name(name);
        }
        return;
      case wire::ServerReflectionRequest::kFileByFilename:
        found = database_.FindFileByName(request.file_by_filename(), &file);
        break;
      case wire::ServerReflectionRequest::kFileContainingSymbol:
        found = database_.FindFileContainingSymbol(request.file_containing_symbol(), &file);
        break;
      case wire::ServerReflectionRequest::kFileContainingExtension:
      case wire::ServerReflectionRequest::kAllExtensionNumbersOfType:
        break;  // the API has none
      default:
        return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "message_request: is required", response);
    }
    if (!found) return Refuse(grpc::StatusCode::NOT_FOUND, "there is no such thing here", response);
    std::set<std::string> given;
    Add(file, &given, response->mutable_file_descriptor_response());
  }

 private:
  ApiFiles() {
    google::protobuf::FileDescriptorSet set;
    const std::string_view bytes = ApiDescriptors();
    set.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    for (const FileDescriptorProto& file : set.file()) {
      database_.Add(file);
      for (const auto& service : file.service()) {
        services_.push_back(absl::StrCat(file.package(), ".", service.name()));
      }
    }
  }

  static void Refuse(grpc::StatusCode code, const char* words,
                     wire::ServerReflectionResponse* response) {
    response->mutable_error_response()->set_error_code(code);
    response->mutable_error_response()->set_error_message(words);
  }

  // The file and all that it imports.
  void Add(const FileDescriptorProto& file, std::set<std::string>* given,
           wire::FileDescriptorResponse* response) const {
    if (!given->insert(file.name()).second) return;
    response->add_file_descriptor_proto(file.SerializeAsString());
    for (const std::string& name : file.dependency()) {
      FileDescriptorProto imported;
      if (database_.FindFileByName(name, &imported)) Add(imported, given, response);
    }
  }

  // Finding changes nothing.
  mutable google::protobuf::SimpleDescriptorDatabase database_;
  std::vector<std::string> services_;
};

// One stream: a request, its response, and so on.
class Reactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Reactor() { StartRead(&in_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const grpc::Status status = services::CatchAll("ServerReflectionInfo", [this] {
      wire::ServerReflectionRequest request;
      wire::ServerReflectionResponse response;
      grpc::Status read = services::ReadMessage(in_, &request);
      if (!read.ok()) return read;
      ApiFiles::Get().Answer(request, &response);
      return services::WriteMessage(response, &out_);
    });
    if (!status.ok()) return Finish(status);
    StartWrite(&out_);
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&in_);
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
    }
  }

  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
};

class ReflectionService final : public services::RawService {
 public:
  ReflectionService() : RawService("grpc.reflection.v1.ServerReflection") {
    Add("ServerReflectionInfo", Type::BIDI_STREAMING,
        new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
            [](grpc::CallbackServerContext*) { return new Reactor; }));
  }
};

}  // namespace

std::unique_ptr<grpc::Service> NewReflectionService() {
  return std::make_unique<ReflectionService>();
}

}  // namespace convtune::rpc
