#include "client/report/report_group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/report/analysis.h"

static_assert(std::endian::native == std::endian::little, "numbers are kept as they are here");

namespace convtune::report {
namespace {

constexpr char kFormat = 1;
constexpr int kThrottledShift = 6;  // above the evidence's number, which is at most 40

class Writer {
 public:
  void Byte(int value) { bytes_ += static_cast<char>(value); }
  void Varint(int64_t value) {
    auto left = static_cast<uint64_t>(value);
    for (; left >= 0x80; left >>= 7) Byte(static_cast<int>(left & 0x7F) | 0x80);
    Byte(static_cast<int>(left));
  }
  template <typename T>
  void Fixed(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(const std::string& text) {
    Varint(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Past the end everything is 0, and ok() is false. Where enough is left for all
// that is read next, kChecked may be false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : next_(bytes.data()), end_(next_ + bytes.size()) {}
  bool ok() const { return ok_; }
  bool at_end() const { return next_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - next_); }

  template <bool kChecked = true>
  int64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Byte<kChecked>());
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return static_cast<int64_t>(value);
    }
    ok_ = false;
    return 0;
  }
  // A varint below `limit`.
  template <bool kChecked = true>
  size_t Index(size_t limit) {
    const int64_t value = Varint<kChecked>();
    if (value >= 0 && static_cast<uint64_t>(value) < limit) return static_cast<size_t>(value);
    ok_ = false;
    return 0;
  }
  template <bool kChecked = true>
  char Byte() {
    if (kChecked && next_ == end_) {
      ok_ = false;
      return 0;
    }
    return *next_++;
  }
  template <typename T, bool kChecked = true>
  T Fixed() {
    T value = 0;
    if (kChecked && left() < sizeof value) {
      ok_ = false;
      next_ = end_;
      return value;
    }
    std::memcpy(&value, next_, sizeof value);
    next_ += sizeof value;
    return value;
  }
  std::string Text() {
    const auto size = static_cast<size_t>(Varint());
    if (size > left()) {
      ok_ = false;
      return "";
    }
    next_ += size;
    return std::string(next_ - size, size);
  }

 private:
  const char* next_;
  const char* const end_;
  bool ok_ = true;
};

// What a row may take: 7 varints and one for each time, and what has a fixed size.
constexpr size_t kMostVarint = 10;
constexpr size_t kMostRow = 8 * kMostVarint + 13;
constexpr size_t kMostTime = kMostVarint + 12;

// `candidates`: the data's numbers, behind a -1 for none.
template <bool kChecked>
void ReadRow(const std::vector<int>& places, const std::vector<int>& candidates, Reader* in,
             ReportRow* row, std::vector<ReportTime>* times) {
  row->place = places[in->Index<kChecked>(places.size())];
  const auto flags = static_cast<unsigned char>(in->Byte<kChecked>());
  row->evidence = static_cast<Evidence>(flags & ((1 << kThrottledShift) - 1));
  row->throttled.reset();
  if (flags >> kThrottledShift != 0) row->throttled = flags >> kThrottledShift == 2;
  row->winner = candidates[in->Index<kChecked>(candidates.size())];
  row->stock = candidates[in->Index<kChecked>(candidates.size())];
  row->tune_time_us = in->Fixed<int64_t, kChecked>();
  row->elapsed_us = in->Varint<kChecked>();
  row->candidate_count = static_cast<uint16_t>(in->Varint<kChecked>());
  row->workspace_bytes = in->Varint<kChecked>();
  row->sm_clock_mhz = in->Fixed<float, kChecked>();
  times->resize(in->Index<kChecked>(candidates.size()));
  for (ReportTime& time : *times) {
    time.candidate = candidates[in->Index<kChecked>(candidates.size() - 1) + 1];
    time.median_us = in->Fixed<float, kChecked>();
    time.low_us = in->Fixed<float, kChecked>();
    time.high_us = in->Fixed<float, kChecked>();
  }
  row->times = *times;
}

// Candidates whose times count for the group, whoever timed them.
std::set<int> Relevant(const ReportData& data) {
  std::vector<const ReportRow*> rows;
  std::vector<int> won(data.candidates().size());
  size_t timed = 0;
  for (const ReportRow& row : data.rows()) {
    rows.push_back(&row);
    if (!row.timed()) continue;
    ++timed;
    ++won[static_cast<size_t>(row.winner)];
  }
  std::stable_partition(rows.begin(), rows.end(),
                        [](const ReportRow* row) { return row->timed(); });
  const CommonChoice common = ChooseCommon(rows, data.candidates(), ReportOptions().least_change);
  std::set<int> relevant = {common.settled, common.winner, common.stock};
  // Were only their owners' times there, they would look better than they are.
  for (size_t c = 0; c < won.size(); ++c) {
    if (static_cast<size_t>(won[c]) * 2 >= timed) relevant.insert(static_cast<int>(c));
  }
  return relevant;
}

void WriteRow(const ReportRow& row, int64_t place, const std::set<int>& relevant, Writer* out) {
  out->Varint(place);
  const int throttled = row.throttled ? (*row.throttled ? 2 : 1) : 0;
  out->Byte(static_cast<int>(row.evidence) | throttled << kThrottledShift);
  out->Varint(row.winner + 1);
  out->Varint(row.stock + 1);
  out->Fixed<int64_t>(row.tune_time_us);
  out->Varint(row.elapsed_us);
  out->Varint(row.candidate_count);
  out->Varint(row.workspace_bytes);
  out->Fixed<float>(row.sm_clock_mhz);
  std::vector<ReportTime> kept;
  for (const ReportTime& time : row.times) {
    if (&time == &row.times.front() || time.candidate == row.stock ||
        relevant.contains(time.candidate)) {
      kept.push_back(time);
    }
  }
  out->Varint(static_cast<int64_t>(kept.size()));
  for (const ReportTime& time : kept) {
    out->Varint(time.candidate);
    out->Fixed<float>(time.median_us);
    out->Fixed<float>(time.low_us);
    out->Fixed<float>(time.high_us);
  }
}

}  // namespace

std::string PackGroup(const std::vector<GroupTuning>& tunings, const Environment& environment) {
  ReportData data;
  std::vector<int64_t> places;
  for (const GroupTuning& each : tunings) {
    data.Add(*each.tuning, environment, ReportPlace{absl::StrCat(each.place), "", "", ""});
    if (data.rows().size() > places.size()) places.push_back(each.place);
  }
  Writer out;
  out.Byte(kFormat);
  out.Varint(static_cast<int64_t>(data.candidates().size()));
  for (const std::string& text : data.candidates()) out.Text(text);
  out.Varint(static_cast<int64_t>(data.rows().size()));
  const std::set<int> relevant = Relevant(data);
  for (size_t i = 0; i < places.size(); ++i) {
    WriteRow(data.rows()[i], places[i], relevant, &out);
  }
  return out.Take();
}

absl::StatusOr<int64_t> AddGroup(std::string_view bytes, int environment, int problem,
                                 const std::vector<int>& places, ReportData* data) {
  Reader in(bytes);
  const auto damaged = [] {
    return absl::DataLossError("report_groups: bytes that this program did not make");
  };
  if (in.Byte() != kFormat || places.empty()) return damaged();
  const int64_t candidate_count = in.Varint();
  if (candidate_count < 0 || static_cast<size_t>(candidate_count) > in.left()) return damaged();
  std::vector<int> candidates = {-1};
  for (int64_t i = 0; i < candidate_count; ++i) {
    candidates.push_back(data->AddCandidate(in.Text()));
  }
  const int64_t rows = in.Varint();
  const size_t most = kMostRow + candidates.size() * kMostTime;
  std::vector<ReportTime> times;
  ReportRow row;
  row.environment = environment;
  row.problem = problem;
  for (int64_t i = 0; i < rows && in.ok(); ++i) {
    if (in.left() >= most) {
      ReadRow<false>(places, candidates, &in, &row, &times);
    } else {
      ReadRow<true>(places, candidates, &in, &row, &times);
    }
    if (!in.ok() || row.place < 0) return damaged();
    data->AddRow(row);
  }
  if (!in.ok() || !in.at_end() || rows < 0) return damaged();
  return rows;
}

}  // namespace convtune::report
