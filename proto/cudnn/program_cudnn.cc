#include "proto/cudnn/program_cudnn.h"

#include <dlfcn.h>
#include <elf.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/child_program.h"
#include "proto/base/status_macros.h"
#include "proto/cudnn/elf_file.h"
#include "proto/model/environment.h"

namespace convtune {
namespace {

// The value of the first symbol of the table that is a version of cuDNN; 0 without one.
uint32_t FindVersion(const ElfFile& file, const Elf64_Ehdr& header, const Elf64_Shdr& symbols) {
  const absl::string_view bytes = file.bytes();
  Elf64_Shdr names;
  if (!file.Read(header.e_shoff + symbols.sh_link * sizeof(names), &names) ||
      names.sh_offset > bytes.size()) {
    return 0;
  }
  const absl::string_view text = bytes.substr(names.sh_offset, names.sh_size);
  Elf64_Sym symbol;
  for (uint64_t at = 0; at + sizeof(symbol) <= symbols.sh_size; at += sizeof(symbol)) {
    if (!file.Read(symbols.sh_offset + at, &symbol)) return 0;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_size != sizeof(uint32_t) ||
        symbol.st_name >= text.size()) {
      continue;
    }
    absl::string_view name = text.substr(symbol.st_name);
    name = name.substr(0, name.find('\0'));
    if (!absl::StartsWith(name, "cudnn_") || !absl::EndsWith(name, "_version")) continue;
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      if (!file.Read(header.e_phoff + i * sizeof(segment), &segment)) return 0;
      uint32_t value = 0;
      if (segment.p_type == PT_LOAD && symbol.st_value >= segment.p_vaddr &&
          symbol.st_value - segment.p_vaddr < segment.p_filesz &&
          file.Read(segment.p_offset + (symbol.st_value - segment.p_vaddr), &value)) {
        return value;
      }
    }
  }
  return 0;
}

// The names of the libraries of cuDNN that `file` opens when it needs them, "libcudnn_ops", as
// its text has them. Empty if the file cannot be read.
std::vector<std::string> LibrariesNamedIn(const std::string& file) {
  const ElfFile mapped(file);
  const absl::string_view bytes = mapped.bytes();
  constexpr absl::string_view kBegin = "libcudnn_";
  constexpr absl::string_view kEnd(".so\0", 4);  // "libcudnn_graph.so.9" is the file's own name
  std::set<std::string> names;
  for (size_t at = bytes.find(kBegin); at != absl::string_view::npos;
       at = bytes.find(kBegin, at + 1)) {
    const size_t end =
        bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at + kBegin.size());
    if (end != absl::string_view::npos && absl::StartsWith(bytes.substr(end), kEnd)) {
      names.emplace(bytes.substr(at, end - at));
    }
  }
  return {names.begin(), names.end()};
}

// The version in the symbol "cudnn_..._version" of an ELF file, "9.20.0", which the libraries
// graph, ops and adv have. Empty without one.
std::string VersionInFile(const std::string& path) {
  const ElfFile file(path);
  const std::optional<Elf64_Ehdr> header = file.Header();
  if (!header) return "";
  Elf64_Shdr section;
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    if (!file.Read(header->e_shoff + i * sizeof(section), &section)) return "";
    if (section.sh_type != SHT_DYNSYM) continue;
    const uint32_t value = FindVersion(file, *header, section);
    if (value == 0) return "";
    // 0x091400 is 9.20.0.
    return CudnnVersion{static_cast<int>(value >> 16), static_cast<int>(value >> 8 & 0xFF),
                        static_cast<int>(value & 0xFF)}
        .ToText();
  }
  return "";
}

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libcudnn.so.9";
constexpr absl::string_view kAnyLibrary = "libcudnn.so.";
constexpr char kGraph[] = "libcudnn_graph";
// A cuDNN without it is the package that compiles all at run time; see LibraryConfiguration.
constexpr char kPrecompiled[] = "libcudnn_engines_precompiled";

// The time that a child has to say what a program loads: a network's folder that does not answer
// must not hold up the caller.
constexpr absl::Duration kLimit = absl::Seconds(10);

// Says, a line each, which files of the packages load cuDNN, and which wheel brought one. Imports
// none of them.
constexpr char kAskPython[] = R"(
import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.metadata, importlib.util, os
for package, file in (("torch", "lib/libtorch_cuda.so"),
                      ("onnxruntime", "capi/libonnxruntime_providers_cuda.so"),
                      ("nvidia", "cudnn/lib/libcudnn.so.9")):
    found = importlib.util.find_spec(package)
    for folder in (found and found.submodule_search_locations) or ():
        if os.path.exists(os.path.join(folder, file)):
            print(package, os.path.join(folder, file), sep="\t")
for wheel in importlib.metadata.distributions():
    name = (wheel.metadata["Name"] or "").replace("_", "-").lower()
    if name.startswith("nvidia-cudnn-cu"):
        print("wheel", name + ">" + wheel.version, sep="\t")
)";

std::string Canonical(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real.string();
}

std::string LibraryIn(const std::string& folder) { return absl::StrCat(folder, "/", kLibrary); }

std::string FolderOf(const std::string& path) {
  return fs::path(Canonical(path)).parent_path().string();
}

// The path of the loader that this program was started with.
std::string LoaderPath() {
  void* const handle = dlopen(LD_SO, RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return LD_SO;
  return map->l_name;
}

// What the loader loads with `file`, where a program has these `variables` besides ours: by file
// name, the paths. `opened` are names that `file` opens besides; of these, what cannot be found is
// left out.
absl::StatusOr<std::map<std::string, std::string>> AskLoader(const std::string& file,
                                                             const std::vector<std::string>& opened,
                                                             Variables variables) {
  std::vector<std::string> command = {LoaderPath()};
  if (!opened.empty()) {
    command.insert(command.end(), {"--preload", absl::StrJoin(opened, " ")});
  }
  command.push_back(file);
  // As ldd does it: unlike with --list, what is not found is no error.
  variables.emplace_back("LD_TRACE_LOADED_OBJECTS", "1");
  ASSIGN_OR_RETURN(const ProgramOutput said,
                   RunToEnd(command, variables, ChildErrors::kOutput, kLimit));
  std::map<std::string, std::string> found;
  for (const absl::string_view line : absl::StrSplit(said.text, '\n')) {
    // "	libcudnn.so.9 => /usr/lib/libcudnn.so.9 (0x00007f0000000000)"
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(absl::StripAsciiWhitespace(line), absl::MaxSplits(" => ", 1));
    const size_t end = sides.second.rfind(" (0x");
    if (end == absl::string_view::npos) continue;
    found.emplace(sides.first, sides.second.substr(0, end));
  }
  if (said.exit_code != 0 && found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be a program of this machine, whose loader cannot read ", file, ": ",
                     said.exit_code < 0 ? "it crashed" : absl::StripAsciiWhitespace(said.text)));
  }
  return found;
}

// "9.20.0" as ".so.9.20.0", ".so.9.20", ".so.9", ".so", as cuDNN tries them in turn.
std::vector<std::string> Endings(const std::string& version) {
  std::vector<std::string> endings;
  for (std::string text = version.empty() ? "9" : version; !text.empty();
       text.resize(text.find('.') == std::string::npos ? 0 : text.rfind('.'))) {
    endings.push_back(absl::StrCat(".so.", text));
  }
  endings.emplace_back(".so");
  return endings;
}

// The version of the cuDNN that the file is of.
std::string VersionOf(const std::string& path) {
  std::string own = VersionInFile(path);
  if (!own.empty()) return own;
  return VersionInFile(absl::StrCat(FolderOf(path), "/", kGraph, ".so.9"));
}

// Adds the libraries that `file` opens.
absl::Status AddLibraries(const std::string& file, const Variables& variables, LoadedCudnn* cudnn) {
  const std::vector<std::string> endings = Endings(cudnn->version);
  std::vector<std::string> opened;
  const std::vector<std::string> names = LibrariesNamedIn(file);
  for (const std::string& name : names) {
    for (const std::string& ending : endings) opened.push_back(absl::StrCat(name, ending));
  }
  ASSIGN_OR_RETURN(const auto found, AskLoader(file, opened, variables));
  std::error_code error;
  for (const std::string& name : names) {
    SubLibrary library{name, "", "", false};
    for (const std::string& ending : endings) {
      const std::string own = absl::StrCat(cudnn->folder, "/", name, ending);
      library.in_folder = library.in_folder || fs::exists(own, error);
      const auto path = found.find(absl::StrCat(name, ending));
      if (library.path.empty() && path != found.end()) library.path = Canonical(path->second);
    }
    if (!library.path.empty()) library.version = VersionOf(library.path);
    cudnn->libraries.push_back(std::move(library));
  }
  return absl::OkStatus();
}

// Returns the cuDNN of `path`, a libcudnn.so, that `by` loads. Empty: the loader finds none, and
// neither has the result a folder.
absl::StatusOr<LoadedCudnn> LookAt(const std::string& by, const std::string& path,
                                   const Variables& variables = {}) {
  LoadedCudnn cudnn;
  cudnn.by = by;
  if (path.empty()) return cudnn;
  cudnn.folder = FolderOf(path);
  if (const std::string name = fs::path(path).filename(); name != kLibrary) {
    cudnn.version = std::string(absl::StripPrefix(name, kAnyLibrary));
    return cudnn;
  }
  cudnn.version = VersionOf(path);
  RETURN_IF_ERROR(AddLibraries(Canonical(path), variables, &cudnn));
  const auto graph = absl::c_find_if(
      cudnn.libraries, [](const SubLibrary& library) { return library.name == kGraph; });
  if (graph != cudnn.libraries.end() && !graph->path.empty()) {
    const std::string file = graph->path;  // its place in the list may change
    RETURN_IF_ERROR(AddLibraries(file, variables, &cudnn));
  }
  return cudnn;
}

// The libcudnn.so.9, or an older one, that a file links, else what it would get if it opened one.
absl::StatusOr<LoadedCudnn> LookAtFile(const std::string& by, const std::string& file,
                                       const Variables& variables) {
  ASSIGN_OR_RETURN(auto loaded, AskLoader(file, {}, variables));
  const auto linked = std::find_if(loaded.begin(), loaded.end(), [&loaded](const auto& library) {
    return loaded.count(kLibrary) > 0 ? library.first == kLibrary
                                      : absl::StartsWith(library.first, kAnyLibrary);
  });
  if (linked != loaded.end()) return LookAt(by, linked->second, variables);
  ASSIGN_OR_RETURN(loaded, AskLoader(file, {kLibrary}, variables));
  ASSIGN_OR_RETURN(LoadedCudnn cudnn,
                   LookAt(absl::StrCat(by, ", if it opens cuDNN,"), loaded[kLibrary], variables));
  cudnn.linked = false;
  return cudnn;
}

// The file of `program`, which PATH may have.
absl::StatusOr<std::string> FindFile(const std::string& program) {
  std::vector<std::string> tried = {program};
  if (!absl::StrContains(program, '/')) {
    tried.clear();
    const char* const path = getenv("PATH");
    for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
      tried.push_back(absl::StrCat(folder, "/", program));
    }
  }
  std::error_code error;
  // A folder beside us is meant where PATH has no such program; a file is not.
  if (fs::is_directory(program, error)) tried.push_back(program);
  for (const std::string& file : tried) {
    if (fs::is_directory(file, error)) {
      const std::string python = absl::StrCat(file, "/bin/python");
      if (access(python.c_str(), X_OK) == 0) return python;
      if (fs::exists(LibraryIn(file), error)) return file;
    } else if (access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "must be a program, or the folder of a venv or of ", kLibrary, ", is ", program));
}

// The interpreter that a script's first line names: "/venv/bin/python" of "#!/venv/bin/python".
// Empty if the file is no script.
std::string InterpreterOf(const std::string& file) {
  std::ifstream text(file, std::ios::binary);
  std::string line;
  if (text.get() != '#' || text.get() != '!' || !std::getline(text, line)) return "";
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty()) return "";
  if (fs::path(words[0]).filename() != "env") return words[0];
  const auto named = std::find_if(words.begin() + 1, words.end(), [](const std::string& word) {
    return !absl::StartsWith(word, "-");  // env -S
  });
  return named != words.end() ? *named : words[0];
}

absl::StatusOr<std::vector<LoadedCudnn>> FindInPython(const std::string& python,
                                                      const Variables& variables) {
  ASSIGN_OR_RETURN(const ProgramOutput said,
                   RunToEnd({python, "-c", kAskPython}, {}, ChildErrors::kOutput, kLimit));
  if (said.exit_code != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        python, " must be a Python that runs: ", absl::StripAsciiWhitespace(said.text)));
  }
  std::vector<std::pair<std::string, std::string>> packages;  // their files that load cuDNN
  std::string wheel, mend;
  int wheels = 0;
  for (const absl::string_view line : absl::StrSplit(said.text, '\n')) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    if (field.first == "nvidia" && wheel.empty()) {
      wheel = field.second;
    } else if (field.first == "wheel") {
      // Of two wheels, each of which may have written the files, neither is the one to install.
      mend = wheels++ > 0
                 ? ""
                 : absl::StrCat(python, " -m pip install --no-deps '", field.second, ",<10'");
    } else if (field.first == "torch" || field.first == "onnxruntime") {
      packages.push_back(field);
    }
  }
  std::vector<LoadedCudnn> found;
  for (const auto& [package, file] : packages) {
    ASSIGN_OR_RETURN(LoadedCudnn cudnn,
                     LookAtFile(absl::StrCat(python, "'s ", package), file, variables));
    if (!wheel.empty() && cudnn.folder == FolderOf(wheel)) cudnn.mend = mend;
    cudnn.linked = true;  // the package is built for cuDNN
    found.push_back(std::move(cudnn));
  }
  // No package finds this one by itself: they get it once a program has loaded it.
  if (!wheel.empty() && absl::c_none_of(found, [&](const LoadedCudnn& cudnn) {
        return cudnn.folder == FolderOf(wheel);
      })) {
    ASSIGN_OR_RETURN(
        LoadedCudnn cudnn,
        LookAt(absl::StrCat(python,
                            "'s wheel, if a program opens it (onnxruntime.preload_dlls() does),"),
               wheel));
    cudnn.mend = mend;
    found.push_back(std::move(cudnn));
  }
  return found;
}

absl::StatusOr<std::vector<LoadedCudnn>> FindAll(const std::string& program,
                                                 const Variables& variables) {
  ASSIGN_OR_RETURN(std::string file, FindFile(program));
  std::error_code error;
  std::vector<LoadedCudnn> found(1);
  if (fs::is_directory(file, error)) {
    ASSIGN_OR_RETURN(
        found[0], LookAt(absl::StrCat("who opens ", LibraryIn(file)), LibraryIn(file), variables));
    return found;
  }
  // A Python may be a script that starts another, as pyenv's are.
  const auto is_python = [&file] {
    return absl::StartsWith(fs::path(file).filename().string(), "python");
  };
  if (const std::string interpreter = InterpreterOf(file); !interpreter.empty() && !is_python()) {
    ASSIGN_OR_RETURN(file, FindFile(interpreter));
  }
  if (is_python()) return FindInPython(file, variables);
  ASSIGN_OR_RETURN(found[0], LookAtFile(file, file, variables));
  return found;
}

// The error with the option before its message.
absl::Status Of(const std::string& option, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(option, ": ", status.message()));
}

}  // namespace

bool HasPrecompiled(const LoadedCudnn& cudnn) {
  return absl::c_any_of(cudnn.libraries, [](const SubLibrary& library) {
    return library.name == kPrecompiled && library.in_folder;
  });
}

CudnnExamination ExamineCudnn(const LoadedCudnn& cudnn) {
  const std::string what = absl::StrCat(
      cudnn.by, " loads cuDNN ", cudnn.version.empty() ? "of an unknown version" : cudnn.version,
      " of ", cudnn.folder);
  if (!cudnn.version.empty() && !absl::StartsWith(cudnn.version, "9")) {
    return {CudnnState::kOlder, absl::StrCat(what, ", and convtune serves cuDNN 9 alone"),
            "install a build of the program for cuDNN 9"};
  }
  std::vector<std::string> missing, foreign;
  bool shadowed = false;  // the program's own cuDNN has one that is foreign
  for (const SubLibrary& library : cudnn.libraries) {
    const std::string folder = fs::path(library.path).parent_path();
    if (library.path.empty()) {
      missing.push_back(library.name);
    } else if (folder != cudnn.folder || library.version != cudnn.version) {
      shadowed = shadowed || (library.in_folder && folder != cudnn.folder);
      foreign.push_back(
          absl::StrCat(library.name, " of ", folder, " (cuDNN ",
                       library.version.empty() ? "of an unknown version" : library.version, ")"));
    }
  }
  if (cudnn.libraries.empty()) {
    return {CudnnState::kUnknown, absl::StrCat(what, ", whose text names no library that it opens"),
            "whether it is whole cannot be told"};
  }
  const std::string again =
      !cudnn.mend.empty()
          ? cudnn.mend
          : absl::StrCat("install a whole cuDNN 9 in the place of that in ", cudnn.folder);
  if (!foreign.empty()) {
    return {CudnnState::kMixed,
            absl::StrCat(what, ", and mixes in ", absl::StrJoin(foreign, ", "),
                         ": convolutions may fail with CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
            shadowed ? absl::StrCat("start it with LD_LIBRARY_PATH=", cudnn.folder,
                                    ", so that its own come first")
                     : again};
  }
  if (!missing.empty() && !HasPrecompiled(cudnn)) {
    return {CudnnState::kForJitAlone,
            absl::StrCat(what, ", which has no precompiled engines: it lacks ",
                         absl::StrJoin(missing, ", ")),
            "install the full package of cuDNN, unless that for JIT alone is meant"};
  }
  if (!missing.empty()) {
    return {CudnnState::kIncomplete,
            absl::StrCat(what, ", which lacks ", absl::StrJoin(missing, ", "),
                         ": cuDNN refuses convolutions without it, or mixes in that of another "
                         "cuDNN once one is installed"),
            again};
  }
  return {CudnnState::kWhole,
          absl::StrCat(what, ", which is whole: it has the ", cudnn.libraries.size(),
                       " libraries that it names"),
          ""};
}

absl::StatusOr<std::vector<LoadedCudnn>> FindCudnn(const std::string& option,
                                                   const std::string& program) {
  absl::StatusOr<std::vector<LoadedCudnn>> found = FindAll(program, {});
  return found.ok() ? std::move(found) : Of(option, found.status());
}

std::vector<std::string> CudaFoldersIn(const std::string& packages) {
  std::error_code error;
  std::vector<std::string> folders;
  for (const char* below : {"cublas/lib", "cuda_nvrtc/lib", "cu13/lib"}) {
    const fs::path folder = fs::path(packages) / below;
    if (fs::is_directory(folder, error)) folders.push_back(folder.string());
  }
  return folders;
}

std::string LibraryPath(const std::string& folder, std::vector<std::string> cuda) {
  cuda.insert(cuda.begin(), folder);
  if (const char* const more = getenv("LD_LIBRARY_PATH"); more != nullptr && *more != '\0') {
    cuda.emplace_back(more);
  }
  return absl::StrJoin(cuda, ":");
}

absl::StatusOr<CudnnToLoad> FindCudnnToLoad(const std::string& option, const std::string& program) {
  // The loader's path of this process comes before a program's own (RUNPATH), and is not the
  // program's.
  absl::StatusOr<std::vector<LoadedCudnn>> looked = FindAll(program, {{"LD_LIBRARY_PATH", ""}});
  if (looked.ok() &&
      absl::c_all_of(*looked, [](const LoadedCudnn& cudnn) { return cudnn.folder.empty(); })) {
    looked = FindAll(program, {});
  }
  if (!looked.ok()) return Of(option, looked.status());
  const std::vector<LoadedCudnn> found = *std::move(looked);
  std::map<std::string, LoadedCudnn> by_folder;
  std::vector<std::string> all;
  for (const LoadedCudnn& cudnn : found) {
    if (cudnn.folder.empty() || ExamineCudnn(cudnn).state == CudnnState::kOlder) continue;
    if (!cudnn.linked) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, ": must load cuDNN 9, and ", program,
                       " links none: name its Python, its venv or the folder of ", kLibrary));
    }
    if (!by_folder.emplace(cudnn.folder, cudnn).second) continue;
    all.push_back(absl::StrCat(cudnn.by, " that of ", cudnn.folder));
  }
  if (by_folder.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": must load cuDNN 9: ",
        found.empty()             ? absl::StrCat(program, " has no package that does")
        : found[0].folder.empty() ? absl::StrCat(found[0].by, " finds no ", kLibrary, " by itself")
                                  : ExamineCudnn(found[0]).what));
  }
  if (by_folder.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": must load one cuDNN, and ",
                                                   absl::StrJoin(all, ", "), ": name the folder"));
  }
  const LoadedCudnn& own = by_folder.begin()->second;
  const std::string packages = fs::path(own.folder).parent_path().parent_path();
  CudnnToLoad to_load{own.folder, LibraryPath(own.folder, CudaFoldersIn(packages)), own.version};
  absl::StatusOr<LoadedCudnn> loaded =
      LookAt(own.by, LibraryIn(own.folder), {{"LD_LIBRARY_PATH", to_load.library_path}});
  if (!loaded.ok()) return Of(option, loaded.status());
  loaded->mend = own.mend;
  const CudnnExamination examined = ExamineCudnn(*loaded);
  if (examined.state == CudnnState::kMixed || examined.state == CudnnState::kIncomplete) {
    return absl::FailedPreconditionError(absl::StrCat(
        option, ": must load a whole cuDNN: ", examined.what, " (", examined.advice, ")"));
  }
  return to_load;
}

}  // namespace convtune
