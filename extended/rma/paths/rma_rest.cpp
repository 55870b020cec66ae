// Sends in polls what is left of puts and gets. Called by rma_messages.cpp, rma_pinned_misses.cpp and
// vis/packets.cpp.
#include "extended/rma/paths/rma_rest.hpp"

#include "am/progress/unfinished.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/rma_messages.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace hydrant {
namespace {

struct CarrierState {
  Mutex mu;
  RmaThread thread;
};
CarrierState& carrier() noexcept {
  alignas(CarrierState) static std::byte place[sizeof(CarrierState)];
  // Never destroyed: threads may be inside.
  static auto* const the_carrier = new (place) CarrierState;
  return *the_carrier;
}

struct TransferRest : Unfinished {
  Transfer part;
  size_t sent = 0;
  RestCount count;
  std::unique_ptr<std::byte[]> source;  // a copy, or null
};

bool proceed_with_transfer(Unfinished& operation) noexcept {
  auto& rest = static_cast<TransferRest&>(operation);
  if (!send_rest(rest.part, &rest.sent, rest.count.pieces) || !rest.count.finish(rest.part.peer))
    return false;
  delete &rest;
  return true;
}

}  // namespace

Mutex& carrier_mutex() noexcept { return carrier().mu; }

void RestCount::start(CompletionCounter& of, Rank peer) noexcept {
  count_by_carrier(pieces, of);
  operation = &of;
  count_start(of, peer);
}

bool RestCount::finish(Rank peer) noexcept {
  if (!pieces.all_done()) return false;
  const int failure = pieces.failure.load(std::memory_order_relaxed);
  if (failure == 0)
    count_done(*operation);
  else
    count_failed(*operation, static_cast<Status>(failure), peer,
                 pieces.failed_at.load(std::memory_order_relaxed),
                 pieces.failed_bytes.load(std::memory_order_relaxed));
  return true;
}

void count_by_carrier(CompletionCounter& pieces, const CompletionCounter& operation) noexcept {
  reset(pieces);
  pieces.thread = &carrier().thread;
  pieces.returns_errors = operation.returns_errors;
}

bool send_rest(const Transfer& part, size_t* sent, CompletionCounter& pieces) noexcept {
  while (*sent < part.bytes) {
    Transfer next = part;
    next.remote += *sent;
    next.local += *sent;
    next.bytes = std::min(paths().medium_max, part.bytes - *sent);
    next.immediate = true;
    Status status = Status::kOk;
    {
      const MutexLock lock(carrier_mutex());
      status = send_one_message(next, pieces);
    }
    if (status == Status::kNotReady) return false;
    if (status != Status::kOk) {
      // Messages under way may still write, so the rest stays until they are complete.
      *sent = part.bytes;
      note_unsent(pieces, status, part.peer);
      break;
    }
    *sent += next.bytes;
  }
  return true;
}

Status finish_in_polls(RmaThread& thread, const Transfer& rest,
                       CompletionCounter& counter) noexcept {
  std::unique_ptr<TransferRest> later(new (std::nothrow) TransferRest);
  const bool copies = rest.is_put() && rest.source_may_change;
  if (later != nullptr && copies) later->source.reset(new (std::nothrow) std::byte[rest.bytes]);
  if (later == nullptr || (copies && later->source == nullptr)) {
    Transfer patient = rest;
    patient.immediate = false;
    return continue_by_messages(thread, patient, counter);
  }
  later->part = rest;
  if (copies) {
    std::memcpy(later->source.get(), rest.local, rest.bytes);
    later->part.local = later->source.get();
  }
  later->count.start(counter, rest.peer);
  later->proceed = proceed_with_transfer;
  continue_in_polls(*later.release());
  return Status::kOk;
}

}  // namespace hydrant
