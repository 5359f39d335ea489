#include "client/report/report_group.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <bit>
#include <map>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/report/analysis.h"

namespace convtune::report {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr char kFormat = 1;
constexpr int kThrottledShift = 6;  // above the evidence's number, which is at most 40

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

bool ReadFloat(CodedInputStream* in, float* value) {
  uint32_t bits = 0;
  if (!in->ReadLittleEndian32(&bits)) return false;
  *value = std::bit_cast<float>(bits);
  return true;
}

template <typename Number>
bool ReadNumber(CodedInputStream* in, Number* value) {
  uint64_t read = 0;
  if (!in->ReadVarint64(&read)) return false;
  *value = static_cast<Number>(read);
  return true;
}

// Reads a place in the list, and gives what is there.
bool ReadIndex(const std::vector<int>& list, CodedInputStream* in, int* value) {
  uint64_t index = 0;
  if (!in->ReadVarint64(&index) || index >= list.size()) return false;
  *value = list[index];
  return true;
}

// `candidates`: the data's numbers; `choices`: the same behind a -1 for none.
bool ReadRow(const std::vector<int>& places, const std::vector<int>& candidates,
             const std::vector<int>& choices, CodedInputStream* in, ReportRow* row) {
  uint8_t flags = 0;
  uint64_t tune_time = 0;
  size_t times = 0;
  if (!ReadIndex(places, in, &row->place) || row->place < 0 || !in->ReadRaw(&flags, 1) ||
      !ReadIndex(choices, in, &row->winner) || !ReadIndex(choices, in, &row->stock) ||
      !in->ReadLittleEndian64(&tune_time) || !ReadNumber(in, &row->elapsed_us) ||
      !ReadNumber(in, &row->candidate_count) || !ReadNumber(in, &row->workspace_bytes) ||
      !ReadFloat(in, &row->sm_clock_mhz) || !ReadNumber(in, &times) || times > candidates.size()) {
    return false;
  }
  row->evidence = static_cast<Evidence>(flags & ((1 << kThrottledShift) - 1));
  if (flags >> kThrottledShift != 0) row->throttled = flags >> kThrottledShift == 2;
  row->tune_time_us = static_cast<int64_t>(tune_time);
  row->times.resize(times);
  for (ReportTime& time : row->times) {
    if (!ReadIndex(candidates, in, &time.candidate) || !ReadFloat(in, &time.median_us) ||
        !ReadFloat(in, &time.low_us) || !ReadFloat(in, &time.high_us)) {
      return false;
    }
  }
  return true;
}

// Candidates whose times count for the group, whoever timed them.
std::set<int> Relevant(std::span<const ReportRow> rows, const std::vector<std::string>& texts) {
  const CommonChoice common = ChooseCommon(rows, texts);
  std::set<int> relevant = {common.settled, common.winner, common.stock};
  // A winner of half the nodes may be the common one: with the times of these nodes alone it would
  // look better than it is.
  std::map<int, size_t> won;
  size_t timed = 0;
  for (const ReportRow& row : rows) {
    if (!row.timed()) continue;
    ++timed;
    ++won[row.winner];
  }
  for (const auto& [candidate, count] : won) {
    if (count * 2 >= timed) relevant.insert(candidate);
  }
  return relevant;
}

void WriteRow(const ReportRow& row, int64_t place, const std::set<int>& relevant,
              CodedOutputStream* out) {
  const auto varint = [out](int64_t value) { out->WriteVarint64(static_cast<uint64_t>(value)); };
  varint(place);
  const int throttled = row.throttled ? (*row.throttled ? 2 : 1) : 0;
  const auto flags =
      static_cast<uint8_t>(static_cast<int>(row.evidence) | throttled << kThrottledShift);
  out->WriteRaw(&flags, 1);
  varint(row.winner + 1);
  varint(row.stock + 1);
  out->WriteLittleEndian64(static_cast<uint64_t>(row.tune_time_us));
  varint(row.elapsed_us);
  varint(row.candidate_count);
  varint(row.workspace_bytes);
  out->WriteLittleEndian32(Bits(row.sm_clock_mhz));
  std::vector<ReportTime> kept;
  for (const ReportTime& time : row.times) {
    if (&time == &row.times.front() || time.candidate == row.stock ||
        relevant.contains(time.candidate)) {
      kept.push_back(time);
    }
  }
  varint(static_cast<int64_t>(kept.size()));
  for (const ReportTime& time : kept) {
    varint(time.candidate);
    for (const float us : {time.median_us, time.low_us, time.high_us}) {
      out->WriteLittleEndian32(Bits(us));
    }
  }
}

}  // namespace

std::string PackGroup(const std::vector<GroupTuning>& tunings, const Environment& environment) {
  ReportData data;
  for (const GroupTuning& each : tunings) {
    data.Add(*each.tuning, environment, ReportPlace{absl::StrCat(each.place), "", "", ""});
  }
  // A problem that is not valid has no rows.
  const std::vector<ReportRow> rows =
      data.pairs().empty() ? std::vector<ReportRow>() : data.pairs().begin()->second;
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  out.WriteRaw(&kFormat, 1);
  out.WriteVarint64(data.candidates().size());
  for (const std::string& text : data.candidates()) {
    out.WriteVarint64(text.size());
    out.WriteString(text);
  }
  out.WriteVarint64(rows.size());
  const std::set<int> relevant = Relevant(rows, data.candidates());
  for (const ReportRow& row : rows) {
    WriteRow(row, tunings[static_cast<size_t>(row.place)].place, relevant, &out);
  }
  out.Trim();
  return bytes;
}

absl::Status AddGroup(std::string_view bytes, int environment, int problem,
                      const std::vector<int>& places, ReportData* data) {
  auto damaged = absl::DataLossError("report_rows: bytes that this program did not make");
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  char format = 0;
  uint64_t count = 0;
  if (!in.ReadRaw(&format, 1) || format != kFormat || !in.ReadVarint64(&count) ||
      count > bytes.size()) {
    return damaged;
  }
  std::vector<int> candidates, choices = {-1};
  for (std::string text; candidates.size() < count;) {
    uint64_t size = 0;
    if (!in.ReadVarint64(&size) || size > bytes.size() ||
        !in.ReadString(&text, static_cast<int>(size))) {
      return damaged;
    }
    candidates.push_back(data->AddCandidate(text));
    choices.push_back(candidates.back());
  }
  if (!in.ReadVarint64(&count) || count > bytes.size()) return damaged;
  std::vector<ReportRow>& rows = data->RowsOf(environment, problem);
  rows.reserve(rows.size() + count);
  for (uint64_t i = 0; i < count; ++i) {
    ReportRow row;
    row.environment = environment;
    row.problem = problem;
    if (!ReadRow(places, candidates, choices, &in, &row)) return damaged;
    rows.push_back(std::move(row));
  }
  return static_cast<size_t>(in.CurrentPosition()) == bytes.size() ? absl::OkStatus() : damaged;
}

}  // namespace convtune::report
