#include "db/bundle/bundle_merge.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <cstdio>

#include "tests/unit/db/bundle/bundle_files.h"

namespace convtune::db::bundle {
namespace {

class BundleMergeTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    WriteWholeFile(folder_.File(name), bytes);
    return folder_.File(name);
  }

  // The merged bundle's bytes.
  absl::StatusOr<std::string> Merge(const std::vector<std::string>& inputs,
                                    bool skip_refused = false) {
    std::string bytes;
    BundleWriter writer([&bytes](std::string_view piece) {
      bytes += piece;
      return absl::OkStatus();
    });
    BundleMergeOptions options;
    options.now = kNow;
    options.skip_refused = skip_refused;
    const auto counts = MergeBundles(inputs, options, &writer);
    if (!counts.ok()) return counts.status();
    counts_ = *counts;
    return bytes;
  }

  // A new key pair; the private key's file.
  std::string NewKey(const std::string& name, std::string* raw_public) {
    EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    FILE* file = std::fopen(folder_.File(name).c_str(), "wb");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen(folder_.File(name + ".pub").c_str(), "wb");
    PEM_write_PUBKEY(file, key);
    std::fclose(file);
    EVP_PKEY_free(key);
    *raw_public = ReadBundlePublicKey(folder_.File(name + ".pub")).value();
    return folder_.File(name);
  }

  std::string SignedBundleOf(const std::vector<Tuning>& tunings, const BundleSigningKey& key) {
    const std::string file = Write("signed", BundleOf(tunings));
    EXPECT_TRUE(SignBundle(file, key).ok());
    return ReadWholeFile(file);
  }

  TestFolder folder_;
  BundleMergeCounts counts_;
};

TEST_F(BundleMergeTest, TakesTheBetterOfEachKeyWhateverTheOrder) {
  std::vector<Tuning> a = SampleTunings(3);
  std::vector<Tuning> b = SampleTunings(4);
  a[0].evidence = Evidence::kHeuristic;
  b[1].evidence = Evidence::kIncomplete;
  const std::string a_file = Write("a", BundleOf(a));
  const std::string b_file = Write("b", BundleOf(b));
  const auto merged = Merge({a_file, b_file});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(*merged, BundleOf({b[0], a[1], a[2], b[3]}));
  EXPECT_EQ(counts_.read, 7);
  EXPECT_EQ(counts_.written, 4);
  EXPECT_EQ(counts_.superseded, 3);
  EXPECT_EQ(Merge({b_file, a_file}).value(), *merged);
}

TEST_F(BundleMergeTest, ABundleWithItselfIsItself) {
  const std::string bytes = BundleOf(SampleTunings(5));
  const std::string file = Write("a", bytes);
  EXPECT_EQ(Merge({file, file}).value(), bytes);
}

TEST_F(BundleMergeTest, ADamagedInputGivesNothing) {
  std::string bytes = BundleOf(SampleTunings(2));
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(Merge({Write("a", bytes)}).status()));
}

TEST_F(BundleMergeTest, ARowThatLiesIsRefusedOrLeftOut) {
  v1::Tuning lie = SampleRow(2);
  lie.clear_candidates();
  const std::string file =
      Write("a", BundleOfRows({SampleRow(1), lie, SampleRow(3)}, SampleBundleEnvironment()));
  EXPECT_TRUE(absl::IsInvalidArgument(Merge({file}).status()));
  EXPECT_EQ(Merge({file}, true).value(), BundleOf({ValidTuning(1), ValidTuning(3)}));
  EXPECT_EQ(counts_.refused, 1);
}

TEST_F(BundleMergeTest, ASignatureIsCheckedAgainstTheTrustedKeys) {
  std::string public_key, other_key;
  const auto key = BundleSigningKey::Read(NewKey("key", &public_key));
  NewKey("other", &other_key);
  ASSERT_TRUE(key.ok()) << key.status();
  const std::string bytes = SignedBundleOf(SampleTunings(2), *key);
  EXPECT_TRUE(ReadAll(bytes).ok());
  EXPECT_TRUE(ReadAll(bytes, nullptr, {public_key}).ok());
  EXPECT_TRUE(ReadAll(bytes, nullptr, {other_key, public_key}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(ReadAll(bytes, nullptr, {other_key})));
  EXPECT_TRUE(absl::IsPermissionDenied(ReadAll(BundleOf(SampleTunings(2)), nullptr, {public_key})));
}

TEST_F(BundleMergeTest, SigningChangesTheTrailerAlone) {
  std::string public_key;
  const auto key = BundleSigningKey::Read(NewKey("key", &public_key));
  const std::string unsigned_bytes = BundleOf(SampleTunings(2));
  const std::string file = Write("a", unsigned_bytes);
  auto reader = BundleReader::Open(file);
  ASSERT_TRUE(ReadWholeBundle(reader->get(), {}, nullptr).ok());
  const auto trailer = static_cast<size_t>((*reader)->trailer_offset());
  ASSERT_TRUE(SignBundle(file, *key).ok());
  const std::string bytes = ReadWholeFile(file);
  EXPECT_EQ(bytes.substr(0, trailer), unsigned_bytes.substr(0, trailer));
  EXPECT_GT(bytes.size(), unsigned_bytes.size());
  // What is signed already can be signed again.
  ASSERT_TRUE(SignBundle(file, *key).ok());
  EXPECT_EQ(ReadWholeFile(file), bytes);
}

TEST_F(BundleMergeTest, AForgedSignatureIsRefusedThoughItsRecordIsSound) {
  std::string public_key;
  const auto key = BundleSigningKey::Read(NewKey("key", &public_key));
  const std::string file = Write("a", SignedBundleOf(SampleTunings(1), *key));
  auto reader = BundleReader::Open(file);
  ASSERT_TRUE(ReadWholeBundle(reader->get(), {}, nullptr).ok());
  v1::BundleTrailer trailer = (*reader)->trailer();
  (*trailer.mutable_signature())[5] ^= 1;
  const int64_t offset = (*reader)->trailer_offset();
  const std::string forged =
      ReadWholeFile(file).substr(0, static_cast<size_t>(offset)) +
      FrameBundleRecord(offset, BundleRecordKind::kTrailer, trailer.SerializeAsString());
  EXPECT_TRUE(absl::IsPermissionDenied(ReadAll(forged)));
  EXPECT_TRUE(absl::IsPermissionDenied(Merge({Write("forged", forged)}).status()));
}

TEST_F(BundleMergeTest, OtherKeysThanEd25519AreRefusedByName) {
  const auto key = BundleSigningKey::Read(Write("key", "no key"));
  EXPECT_TRUE(absl::IsInvalidArgument(key.status()));
  EXPECT_NE(key.status().message().find("Ed25519 private key"), std::string::npos);
}

}  // namespace
}  // namespace convtune::db::bundle
