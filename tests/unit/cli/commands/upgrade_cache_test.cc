#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/cli/commands/upgrade/cudnn_cache.h"
#include "proto/base/unique_fd.h"
#include "tests/unit/temp_dir.h"

namespace convtune::cli::commands {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What pip says of a version that there is not, and without a network.
constexpr char kNoSuchVersion[] =
    "ERROR: Could not find a version that satisfies the requirement nvidia-cudnn-cu13==9.99.* "
    "(from versions: 0.0.1, 9.12.0.46, 9.13.0.50, 9.28.1.4)\n"
    "ERROR: No matching distribution found for nvidia-cudnn-cu13==9.99.*\n";
constexpr char kNoNetwork[] =
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
    "ERROR: Could not find a version that satisfies the requirement nvidia-cudnn-cu13==9.28.* "
    "(from versions: none)\n";
constexpr char kDiskFull[] =
    "ERROR: Could not install packages: [Errno 28] No space left on device\n";

// A shell script plays the interpreter whose pip is run.
class CudnnCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("CONVTUNE_PYTHON", (folder_ + "/python").c_str(), 1);
    Script("worker",
           "echo cuda 13; echo 'cublaslt /opt/blas/libcublasLt.so.13'; "
           "echo 'nvrtc /opt/rtc/libnvrtc.so.13'");
    // Unpacks what it is asked for into the folder behind --target.
    Script("python",
           "echo \"$*\" >> " + folder_ +
               "/asked\n"
               "while [ \"$1\" != --target ]; do shift; done\n"
               "mkdir -p \"$2/nvidia/cudnn/lib\" \"$2/nvidia_cudnn_cu13-9.28.1.4.dist-info\"\n"
               "touch \"$2/nvidia/cudnn/lib/libcudnn.so.9\"\n");
  }
  void TearDown() override { unsetenv("CONVTUNE_PYTHON"); }

  static void AddLibrary(const std::string& folder) {
    fs::create_directories(folder);
    std::ofstream(folder + "/libcudnn.so.9") << "";
  }

  void Script(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0755);
  }

  // Has pip report a package that needs `requirements`, with a warning around it.
  void Pin(const std::string& requirements) const {
    Script("python", "echo \"$*\" >> " + folder_ + "/asked\necho 'WARNING: root'\ncat <<'END'\n" +
                         R"({"install": [{"metadata": {"name": "torch", "version": "2.15.0", )" +
                         "\"requires_dist\": [" + requirements + "]}}]}\nEND\necho notice");
  }

  absl::StatusOr<CudnnToLoad> Find(const std::string& name) const {
    return upgrade::CudnnCache({cache_, "", folder_ + "/worker"}).Find("--to", name);
  }

  // What is said where pip fails with this output.
  std::string WhyNot(const std::string& name, const std::string& output) const {
    Script("python", "cat <<'END'\n" + output + "\nEND\nexit 1");
    return std::string(Find(name).status().message());
  }

  // Entries of the cache, but for its lock.
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().filename() != "lock") names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string Asked() const {
    std::ifstream file(folder_ + "/asked");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TempDir dir_;
  const std::string folder_ = dir_.path();
  const std::string cache_ = dir_.path("cache");
};

TEST_F(CudnnCacheTest, AVersionIsFetchedOnceAndKeptUnderItsWholeNumber) {
  const auto found = Find("9.28");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, fs::canonical(cache_ + "/cu13-9.28.1.4/nvidia/cudnn/lib"));
  EXPECT_THAT(found->library_path, testing::StartsWith(found->folder + ":/opt/blas:/opt/rtc"));
  EXPECT_THAT(Asked(), HasSubstr("nvidia-cudnn-cu13==9.28.*"));
  EXPECT_THAT(Entries(), ElementsAre("cu13-9.28.1.4"));
  Script("python", "exit 1");
  EXPECT_EQ(Find("9.28")->folder, found->folder);
  EXPECT_EQ(Find("9.28.1")->folder, found->folder);
  EXPECT_FALSE(Find("9.2").ok());  // no prefix of digits
}

TEST_F(CudnnCacheTest, OfSeveralPatchesTheNewestIsTaken) {
  for (const char* version :
       {"cu13-9.28.1.4", "cu13-9.28.10.1", "cu13-9.28.0.42", "cu12-9.28.11.1"}) {
    AddLibrary(cache_ + "/" + version + "/nvidia/cudnn/lib");
  }
  EXPECT_THAT(Find("9.28")->folder, HasSubstr("cu13-9.28.10.1"));
  EXPECT_THAT(Find("9.28.0")->folder, HasSubstr("cu13-9.28.0.42"));
}

TEST_F(CudnnCacheTest, TheWheelsCudaCanBeNamedAndComesWithItsLibraries) {
  fs::create_directories(cache_ + "/cuda12/nvidia/cublas/lib");
  ASSERT_TRUE(Find("9.28+cu12").ok());
  EXPECT_THAT(Asked(), HasSubstr("nvidia-cudnn-cu12==9.28.*"));
  EXPECT_THAT(Find("9.28+cu12")->library_path, HasSubstr(cache_ + "/cuda12/nvidia/cublas/lib"));
}

TEST_F(CudnnCacheTest, TheWorkersOwnCudaServesEachVersionThatIsBuiltForIt) {
  Script("worker", "echo cuda 12; echo 'cublaslt /opt/blas/libcublasLt.so.12'");
  AddLibrary(cache_ + "/cu12-9.11.0.1/lib");
  for (const char* name : {"9.11", "9.11+cu12"}) {
    const auto found = Find(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(found->library_path, HasSubstr(":/opt/blas")) << name;
  }
  EXPECT_EQ(Asked(), "");
}

TEST_F(CudnnCacheTest, NothingHalfDoneStaysWhenTheDiskIsFull) {
  Script("python",
         "while [ \"$1\" != --target ]; do shift; done\n"
         "mkdir -p \"$2/nvidia/cudnn/lib\"; touch \"$2/nvidia/cudnn/lib/libcudnn.so.9\"\n"
         "echo '" +
             std::string(kDiskFull) + "' >&2; exit 1");
  const auto found = Find("9.28");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(found.status().message(),
            "--to: pip could not get nvidia-cudnn-cu13: ERROR: Could not install packages: "
            "[Errno 28] No space left on device");
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(CudnnCacheTest, AnInterpreterThatIsNotThereIsNamedWithItsVariable) {
  setenv("CONVTUNE_PYTHON", "/nonexistent/python", 1);
  EXPECT_EQ(Find("9.28").status().message(),
            "--to: /nonexistent/python cannot be run: No such file or directory: CONVTUNE_PYTHON "
            "must name a Python that has pip, or be left out");
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(CudnnCacheTest, WhatAKilledProcessLeftIsRemovedAndNeverUsed) {
  AddLibrary(cache_ + "/cu13-new.part/whole/nvidia/cudnn/lib");
  ASSERT_TRUE(Find("9.28").ok());
  EXPECT_THAT(Asked(), HasSubstr("nvidia-cudnn-cu13"));
  EXPECT_THAT(Entries(), ElementsAre("cu13-9.28.1.4"));
}

TEST_F(CudnnCacheTest, AFolderThatLostTheLibraryIsFetchedAgain) {
  fs::create_directories(cache_ + "/cu13-9.28.1.4/nvidia/cudnn/include");
  const auto found = Find("9.28");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, fs::canonical(cache_ + "/cu13-9.28.1.4/nvidia/cudnn/lib"));
  EXPECT_THAT(Entries(), ElementsAre("cu13-9.28.1.4"));
  EXPECT_EQ(found->version, "9.28");
}

TEST_F(CudnnCacheTest, AWheelWithoutTheLibraryIsAnError) {
  Script("python",
         "while [ \"$1\" != --target ]; do shift; done\n"
         "mkdir -p \"$2/nvidia_cudnn_cu13-9.28.1.4.dist-info\"");
  const absl::Status status = Find("9.28").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--cache: there is no library in " + cache_ + "/cu13-9.28.1.4"));
}

TEST_F(CudnnCacheTest, AnotherProcessIsWaitedForAndItsVersionTaken) {
  fs::create_directories(cache_);
  UniqueFd other(open((cache_ + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  std::vector<std::string> said;
  // The other process ends once this one says that it waits for it.
  const auto say = [&](const std::string& words) {
    said.push_back(words);
    AddLibrary(cache_ + "/cu13-9.28.0.1/lib");
    other = UniqueFd();
  };
  const auto found =
      upgrade::CudnnCache({cache_, "", folder_ + "/worker", say}).Find("--to", "9.28");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, fs::canonical(cache_ + "/cu13-9.28.0.1/lib"));
  EXPECT_THAT(said, ElementsAre("waiting for another process that fills " + cache_));
  EXPECT_EQ(Asked(), "");
}

TEST_F(CudnnCacheTest, AFolderIsTakenWithoutPip) {
  AddLibrary(folder_ + "/mine/lib64");
  EXPECT_EQ(Find(folder_ + "/mine")->folder, fs::canonical(folder_ + "/mine/lib64"));
  EXPECT_EQ(Asked(), "");
  EXPECT_THAT(Find("")->folder, IsEmpty());
}

TEST_F(CudnnCacheTest, AVenvIsAFolder) {
  const std::string lib = folder_ + "/venv/lib/python3.12/site-packages/nvidia/cudnn/lib";
  AddLibrary(lib);
  EXPECT_EQ(Find(folder_ + "/venv")->folder, fs::canonical(lib));
  EXPECT_EQ(Asked(), "");
}

TEST_F(CudnnCacheTest, APackagesPinIsTheVersion) {
  const std::string kept = cache_ + "/cu12-9.26.0.51/nvidia/cudnn/lib";
  fs::create_directories(cache_ + "/cuda12/nvidia/cublas/lib");
  AddLibrary(kept);
  // As the metadata of torch's wheels have had it: new, old, and with other packages around it.
  for (const char* pin :
       {R"("numpy", "nvidia-cudnn-cu12==9.26.0.51; platform_system == \"Linux\"")",
        R"("nvidia-cudnn-cu12 (==9.26.0.51) ; platform_system == \"Linux\"")",
        R"("nvidia-cudnn-frontend<2", "nvidia-cudnn-cu12==9.26.0.51")"}) {
    Pin(pin);
    const auto found = Find("torch==2.15");
    ASSERT_TRUE(found.ok()) << found.status() << " " << pin;
    EXPECT_EQ(found->folder, fs::canonical(kept));
    EXPECT_EQ(found->version, "9.26.0.51");
  }
}

TEST_F(CudnnCacheTest, APackageWithoutAPinOfCudnn9IsRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"("numpy")", "--to: must be a package that names one cuDNN; torch==2.15 names none"},
      {R"("nvidia-cudnn-frontend==1.2")", "torch==2.15 names none"},
      {R"("nvidia-cudnn-cu13~=9.0; extra == \"cudnn\"")",
       "torch==2.15 names nvidia-cudnn-cu13~=9.0; extra == \"cudnn\": give a version"},
      {R"("nvidia-cudnn-cu13==9.*")", "names nvidia-cudnn-cu13==9.*"},
      {R"("nvidia-cudnn-cu12==8.9.2.26")",
       "must be cuDNN 9: a version such as 9.28, a package such as torch==2.15, or a folder; is "
       "8.9"}};
  for (const auto& [pin, words] : cases) {
    Pin(pin);
    const absl::Status status = Find("torch==2.15").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pin;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  for (const char* said : {"", "no report", "{}", R"({"install": []})", "}{"}) {
    Script("python", std::string("printf '%s' '") + said + "'");
    const absl::Status status = Find("torch==2.15").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << said;
    EXPECT_THAT(std::string(status.message()), HasSubstr("pip gave no report of torch==2.15"));
  }
}

TEST_F(CudnnCacheTest, APackageThatPipDoesNotGetIsSaidWhy) {
  const auto why = [this](const std::string& output) { return WhyNot("torch==2.99", output); };
  EXPECT_EQ(why("ERROR: Could not find a version that satisfies the requirement torch==2.99 (from "
                "versions: 1.13.0, 2.15.0)"),
            "--to: PyPI has no torch 2.99: it has 1.13.0 to 2.15.0");
  EXPECT_EQ(why("Usage: pip install\n\nno such option: --report\n"),
            "--to: pip could not get torch: no such option: --report");
  EXPECT_EQ(why("ERROR: Could not find a version that satisfies the requirement troch==2.99 (from "
                "versions: none)"),
            "--to: PyPI has no package torch for this machine's Python");
  EXPECT_EQ(why(kNoNetwork),
            "--to: PyPI cannot be reached: name a version of cuDNN, or its folder");
}

TEST_F(CudnnCacheTest, TheIndexIsPipsForThePinAndForTheWheel) {
  Pin(R"("nvidia-cudnn-cu13==9.28.1.4")");
  const auto find = [this] {
    return upgrade::CudnnCache({cache_, "https://index/simple", folder_ + "/worker"})
        .Find("--to", "torch==2.15");
  };
  EXPECT_FALSE(find().ok());  // the script that answers for the pin installs nothing
  const std::vector<std::string> asked = absl::StrSplit(Asked(), '\n', absl::SkipEmpty());
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_THAT(asked, Each(HasSubstr("--index-url https://index/simple")));
  EXPECT_THAT(asked[0], AllOf(HasSubstr("--dry-run"), HasSubstr("torch==2.15")));
  EXPECT_THAT(asked[1], HasSubstr("nvidia-cudnn-cu13==9.28.1.4"));
}

TEST_F(CudnnCacheTest, AFolderWithoutCudnnAndNonsenseAreRefused) {
  EXPECT_EQ(Find(folder_ + "/none").status().message(),
            "--to: there is no folder " + folder_ + "/none");
  EXPECT_EQ(Find(folder_).status().message(), "--to: there is no libcudnn.so.9 in " + folder_);
  for (const char* name : {"8.9", "9", "9.", "9.x", "latest", "9.28+cu11"}) {
    const absl::Status status = Find(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--to: must be cuDNN 9: a version such as 9.28"));
  }
  EXPECT_EQ(Asked(), "");
}

TEST_F(CudnnCacheTest, EachCauseForWhichAWheelDoesNotComeHasItsWords) {
  const auto why = [this](const std::string& output) { return WhyNot("9.99", output); };
  EXPECT_EQ(why(kNoSuchVersion),
            "--to: PyPI has no nvidia-cudnn-cu13 9.99: it has 9.12.0.46 to 9.28.1.4");
  EXPECT_THAT(why(kNoNetwork), HasSubstr("PyPI cannot be reached, and no 9.99 is in " + cache_));
  EXPECT_EQ(why("/usr/bin/python3: No module named pip\n"),
            "--to: pip could not get nvidia-cudnn-cu13: /usr/bin/python3: No module named pip");
  EXPECT_EQ(why(""), "--to: pip could not get nvidia-cudnn-cu13: it gave no reason");
}

}  // namespace
}  // namespace convtune::cli::commands
