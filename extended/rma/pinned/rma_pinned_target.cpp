// Executes the target's part of a move: puts and gets whose data travels with it. The remote pins call it as
// their `remote` function.
#include "am/job/job.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/own_memory.hpp"
#include "extended/rma/pinned/on_demand.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"

#include <cstring>
#include <new>

namespace hydrant {

namespace {

size_t write_status(void* reply, size_t room, MoveStatus status) noexcept {
  if (room == 0) return 0;
  std::memset(reply, status, 1);
  return 1;
}

// A put of a peer's data that is under way. It holds its source: the peer's firehose may end before the put
// completes, because the peer releases it when the reply arrives, or because the reply grants none.
struct PutBack : Completion {
  hydrant_pin_t source{};
};

// Completion of a put to the initiator of a get. No thread waits for it: the reply, which follows it on
// the same queue, announces the data. If the put fails, the initiator would read garbage, so the job
// ends.
void on_put_back(Completion& completion, Status status) noexcept {
  auto* const put = static_cast<PutBack*>(&completion);
  (void)hydrant_release(put->source);
  delete put;
  if (status == Status::kOk || status == Status::kBroken) return;
  fatal(
      is_refusal(status)
          ? "cannot put the data of a peer's get: the network refuses the key of one of its ends, "
            "which are both held; report this as a fault of the library"
          : "cannot put the data of a peer's get: part of the memory that the peer names is "
            "unmapped; keep the memory of a get mapped until its event is done");
}

MoveStatus put_back(uint32_t from, hydrant_range_t range, const MoveArgs& args,
                    const std::byte* blob) noexcept {
  alignas(16) std::byte key[4096];
  if (!pinned_puts_come_first(from) || firehose().key_bytes > sizeof key ||
      hydrant_import_key(firehose().domain, blob, args.key_bytes, key) != GASNET_OK)
    return kNotDone;
  auto* const put = new (std::nothrow) PutBack;
  if (put == nullptr) return kNotDone;
  put->done = on_put_back;
  // The memory has just been pinned for the peer: a hit, unless it is not cached.
  put->source = hydrant_try_pin(firehose().domain, reinterpret_cast<void*>(range.addr), range.len,
                                HYDRANT_LOCAL_READ | HYDRANT_REMOTE_READ);
  if (put->source.region == nullptr) {
    delete put;
    return kNotDone;
  }
  const PinnedOperations::Pinned remote{static_cast<uintptr_t>(args.dest), key};
  const PinnedOperations::Pinned local{range.addr,
                                       static_cast<const std::byte*>(put->source.region->key)};
  if (job().pinned->put(from, remote, local, range.len, put) == Status::kOk) return kDone;
  (void)hydrant_release(put->source);
  delete put;
  return kNotDone;
}

}  // namespace

size_t serve_move(void*, uint32_t from, const hydrant_region_t* pinned, hydrant_range_t range,
                  const void* given, size_t given_len, void* reply, size_t room) {
  MoveArgs args{};
  if (given_len < sizeof args) return write_status(reply, room, kNotDone);
  std::memcpy(&args, given, sizeof args);
  const auto* rest = static_cast<const std::byte*>(given) + sizeof args;
  const size_t rest_len = given_len - sizeof args;
  switch (args.kind) {
    case MoveArgs::kPut:
      if (rest_len != range.len) return write_status(reply, room, kNotDone);
      return write_status(reply, room, write_own(range.addr, rest, range.len) ? kDone : kFault);
    case MoveArgs::kGet: {
      if (range.len >= room) return write_status(reply, room, kNotDone);
      std::byte* to = static_cast<std::byte*>(reply) + 1;
      const void* data = read_own(range.addr, to, range.len);
      if (data == nullptr) return write_status(reply, room, kFault);
      if (data != to) std::memcpy(to, data, range.len);
      return write_status(reply, room, kDone) + range.len;
    }
    case MoveArgs::kPutBack:
      if (pinned == nullptr || rest_len != args.key_bytes)
        return write_status(reply, room, kNotDone);
      return write_status(reply, room, put_back(from, range, args, rest));
    default: return write_status(reply, room, kNotDone);
  }
}

void start_pinned_transfers() noexcept {
  start_firehose(serve_move);
  if (is_firehose_enabled()) forget_on_demand_keys();
}

}  // namespace hydrant
