// Random damage: what is read is what was written, or nothing. 100 cases, or
// 10,000 with CONVTUNE_TEST_LONG=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

constexpr int kTunings = 12;
constexpr size_t kPage = 4096;

// What a stopped or killed daemon leaves.
struct Left {
  std::string file;
  std::string log;  // empty: there is none
};

class StoreCorruptionTest : public StoreTest {
 protected:
  // Of a store that was closed.
  Left Closed() {
    Fill(kTunings);
    return {ReadWholeFile(DatabasePath()), ""};
  }

  // Of one that was killed: the last tunings are in the log alone.
  Left Killed() {
    Fill(kTunings / 2);
    auto store = Open();
    for (int n = kTunings / 2 + 1; n <= kTunings; ++n) {
      EXPECT_TRUE(store->PutTuning(SampleTuning(n), SampleEnvironment()).ok());
    }
    return {ReadWholeFile(DatabasePath()), ReadWholeFile(DatabasePath() + "-wal")};
  }

  // Bits, bytes, an empty page, a cut, or another part of the file in its place.
  std::string Damage(std::string content) {
    const auto at = [&] { return random_() % content.size(); };
    switch (random_() % 5) {
      case 0:
        for (uint64_t left = 1 + random_() % 4; left > 0; --left) {
          content[at()] ^= static_cast<char>(1 << random_() % 8);
        }
        break;
      case 1:
        for (uint64_t left = 1 + random_() % 64; left > 0; --left) {
          content[at()] = static_cast<char>(random_());
        }
        break;
      case 2: {
        const size_t page = at() / kPage * kPage;
        const auto begin = content.begin() + static_cast<ptrdiff_t>(page);
        std::fill_n(begin, std::min(kPage, content.size() - page), '\0');
        break;
      }
      case 3:
        content.resize(at());
        break;
      default: {
        const std::string part = content.substr(at(), 1 + random_() % kPage);
        const size_t to = at();
        const size_t size = std::min(part.size(), content.size() - to);
        content.replace(to, size, part, 0, size);
      }
    }
    return content;
  }

  void Write(const Left& left) {
    folder_.Clear();
    WriteWholeFile(DatabasePath(), left.file);
    if (!left.log.empty()) WriteWholeFile(DatabasePath() + "-wal", left.log);
  }

  bool WasPutAside() const {
    const auto names = folder_.Names();
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.find(".corrupt-") != std::string::npos;
    });
  }

  // How many tunings are found; each must be what was written.
  static int ExpectNoLie(SqliteStore& store) {
    int found = 0;
    static_cast<void>(ForEachTuning(
        store,
        [&](const Tuning& tuning) {
          EXPECT_EQ(tuning, WithoutSamples(SampleTuning(NumberOf(tuning))));
          ++found;
        },
        [](const std::string&) {}));
    for (int n = 1; n <= kTunings; ++n) {
      const auto tuning = store.GetTuning(SampleTuning(n).key);
      if (!tuning.ok()) continue;
      EXPECT_EQ(WithoutSamples(*tuning), WithoutSamples(SampleTuning(n)));
      // Samples may be gone, as they are from old tunings: no answer comes of them.
      for (size_t i = 0; i < tuning->candidates.size(); ++i) {
        const auto& samples = tuning->candidates[i].samples_ns;
        EXPECT_TRUE(samples.empty() || samples == SampleTuning(n).candidates[i].samples_ns);
      }
    }
    return found;
  }

  void Run(int cases, const Left& closed, const Left& killed) {
    int whole = 0;
    int in_part = 0;
    int put_aside = 0;
    int refused = 0;
    for (int i = 0; i < cases; ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      Left left = i % 2 == 0 ? closed : killed;
      std::string& hit = !left.log.empty() && random_() % 2 == 0 ? left.log : left.file;
      hit = Damage(hit);
      Write(left);
      auto store = SqliteStore::Open(Options());
      if (!store.ok()) {
        // As the file says it is another application's, or of a newer schema.
        ++refused;
        EXPECT_TRUE(absl::IsFailedPrecondition(store.status())) << store.status();
      } else {
        const int found = ExpectNoLie(**store);
        const bool aside = WasPutAside();
        (aside ? put_aside : found == kTunings ? whole : in_part) += 1;
        const absl::Status put = (*store)->PutTuning(SampleTuning(1), SampleEnvironment());
        EXPECT_TRUE(put.ok() || !aside) << put;
        EXPECT_TRUE(put.ok() || absl::IsDataLoss(put) || absl::IsInternal(put)) << put;
        ExpectNoLie(**store);
        static_cast<void>((*store)->Check());
      }
      if (HasFailure()) FAIL();
    }
    std::printf("%d damaged: %d whole, %d in part, %d put aside, %d refused\n", cases, whole,
                in_part, put_aside, refused);
    EXPECT_GT(whole, 0);
    EXPECT_GT(in_part, 0);
    EXPECT_GT(put_aside, 0);
  }

  std::mt19937_64 random_{20240229};
};

TEST_F(StoreCorruptionTest, DamagedFilesNeverLie) {
  const bool is_long = std::getenv("CONVTUNE_TEST_LONG") != nullptr;
  const Left killed = Killed();
  folder_.Clear();
  const Left closed = Closed();
  Run(is_long ? 10'000 : 100, closed, killed);
}

}  // namespace
}  // namespace convtune::db::store
