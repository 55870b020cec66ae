// The simulated clocks and wires of firehose_bench (wire_world.hpp); PutStrategy drives it.
#include "bench/support/wire_world.hpp"

#include "bench/support/machine.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hydrant::bench {
namespace {

constexpr size_t kParcelsAtOnce = 64;
constexpr size_t kTimedCopy = 1024;
constexpr uint64_t kLongPieceNs = 20'000;

}  // namespace

RemoteCluster::RemoteCluster(Ranks& ranks, uint32_t count)
    : ranks_(ranks), clocks_(count), wire_free_(size_t{count} * count) {}

uint64_t RemoteCluster::align_clocks() {
  (void)take_stolen(now_ns());
  const uint64_t latest = *std::max_element(clocks_.begin(), clocks_.end());
  std::fill(clocks_.begin(), clocks_.end(), latest);
  return latest;
}

void RemoteCluster::enter(uint32_t rank) {
  running_ = rank;
  mark_ = now_ns();
}

uint64_t RemoteCluster::take_stolen(uint64_t now) {
  const uint64_t worked = thread_ns();
  const uint64_t elapsed = now - std::exchange(looked_at_, now);
  const uint64_t ran = worked - std::exchange(worked_at_, worked);
  return elapsed > ran ? elapsed - ran : 0;
}

uint64_t RemoteCluster::spent() {
  const uint64_t now = now_ns();
  if (now - mark_ > kLongPieceNs) mark_ += std::min(take_stolen(now), now - mark_);
  return now - mark_;
}

void RemoteCluster::leave() { clocks_[running_] += spent(); }

RemoteCluster::Parcel* RemoteCluster::take_parcel() {
  if (free_.empty()) {
    parcels_.emplace_back(kParcelsAtOnce);
    for (Parcel& parcel : parcels_.back()) free_.push_back(&parcel);
  }
  Parcel* parcel = free_.back();
  free_.pop_back();
  return parcel;
}

void RemoteCluster::schedule(uint64_t time, Parcel* parcel) {
  events_.push({time, numbers_++, parcel});
}

void RemoteCluster::send(uint32_t to, uint32_t kind, const void* bytes, size_t len) {
  Parcel* parcel = take_parcel();
  parcel->what = What::kMessage;
  parcel->kind = kind;
  parcel->from = running_;
  parcel->to = to;
  parcel->len = std::min(len, kMaxMessage);
  std::memcpy(parcel->bytes, bytes, parcel->len);
  ++messages_;
  schedule(clocks_[running_] + spent() + delay_, parcel);
}

void RemoteCluster::post(uint32_t to, const Put& put) {
  Parcel* parcel = take_parcel();
  parcel->what = What::kPutArrives;
  parcel->from = running_;
  parcel->to = to;
  parcel->put = put;
  ++puts_;
  schedule(clocks_[running_] + spent() + delay_, parcel);
}

// Simulates the target's adapter: copies a put's bytes and schedules its completion.
void RemoteCluster::carry(uint64_t time, Parcel* parcel) {
  const Put& put = parcel->put;
  uint64_t& busy_until = wire_free_[size_t{parcel->from} * clocks_.size() + parcel->to];
  // Shorter copies take less time than reading the clock.
  const bool is_timed = rate_ == 0.0 && put.len >= kTimedCopy;
  const uint64_t begin = is_timed ? now_ns() : 0;
  std::memcpy(put.to, put.from, put.len);
  uint64_t taken = is_timed ? now_ns() - begin : 0;
  if (rate_ != 0.0) taken = static_cast<uint64_t>(static_cast<double>(put.len) / rate_);
  const uint64_t end = std::max(time, busy_until) + taken;
  busy_until = end;
  parcel->what = put.announced ? What::kPutLanded : What::kPutDone;
  schedule(put.announced ? end : end + delay_, parcel);
}

uint32_t RemoteCluster::step() {
  const Event event = events_.top();
  events_.pop();
  Parcel* parcel = event.parcel;
  if (parcel->what == What::kPutArrives) {
    carry(event.time, parcel);
    return parcel->to;
  }
  const uint32_t rank = parcel->what == What::kPutDone ? parcel->from : parcel->to;
  clocks_[rank] = std::max(clocks_[rank], event.time);
  enter(rank);
  switch (parcel->what) {
    case What::kMessage:
      ranks_.on_message(rank, parcel->from, parcel->kind, parcel->bytes, parcel->len);
      break;
    case What::kPutLanded: ranks_.on_put_landed(rank, parcel->from, parcel->put.context); break;
    default: ranks_.on_put_done(parcel->put.context);
  }
  leave();
  free_.push_back(parcel);
  return rank;
}

}  // namespace hydrant::bench
