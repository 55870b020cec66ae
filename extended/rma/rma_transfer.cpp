// Starts all puts and gets: copies mapped memory at once, else chooses a path (rma_path.hpp) and takes it.
// rma_calls.cpp, rma_many.cpp, persistent.cpp and operation.cpp (collective) call it.
#include "am/call/hsl.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/message/send.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/binding/device_memory.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/paths/rma_mapped.hpp"
#include "extended/rma/paths/rma_messages.hpp"
#include "extended/rma/paths/rma_posted.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/rma.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant {
namespace {

Status no_state() noexcept {
  return fail(Status::kResource, "no memory for a thread's state of puts and gets");
}

// Assign only if different: completions of pieces under way read this field.
void own(CompletionCounter& counter, RmaThread* thread) noexcept {
  if (counter.thread != thread) counter.thread = thread;
}

// Returns true if the copy is complete.
bool copy_here(RmaThread& thread, const PathChoices& choices, const Transfer& what) noexcept {
  const bool is_self = what.peer == job().rank();
  if (is_self ? !choices.self : !choices.mapped) return false;
  std::byte* here = mapped_here(thread, what.peer, what.remote, what.bytes);
  if (here == nullptr) return false;
  if (what.is_put()) {
    copy_bytes(here, what.local, what.bytes);
  } else {
    copy_bytes(what.local, here, what.bytes);
  }
  thread.count(what.direction, what.peer, is_self ? Path::kSelf : Path::kMapped, what.bytes);
  return true;
}

Status copy_by_cma(RmaThread& thread, const Transfer& what) noexcept {
  MemoryAccess& memory = *job().memory;
  const Status status = what.is_put()
                            ? memory.put(what.peer, what.remote, what.local, what.bytes, nullptr)
                            : memory.get(what.peer, what.remote, what.local, what.bytes, nullptr);
  if (status == Status::kOk) thread.count(what.direction, what.peer, Path::kCma, what.bytes);
  return status;
}

// Writes a block of equal bytes repeatedly.
Status fill_by_kernel(RmaThread& thread, Rank peer, uintptr_t remote, int value,
                      size_t bytes) noexcept {
  std::byte* block = thread.scratch();
  if (block == nullptr) return fail_literal(Status::kUnsupported, "no memory for a block");
  std::memset(block, value, std::min(bytes, RmaThread::kScratchBytes));
  for (size_t done = 0; done < bytes; done += RmaThread::kScratchBytes) {
    const size_t part = std::min(bytes - done, RmaThread::kScratchBytes);
    const Status status = job().memory->put(peer, remote + done, block, part, nullptr);
    if (status != Status::kOk) return status;
  }
  thread.count(Direction::kPut, peer, Path::kCma, bytes);
  return Status::kOk;
}

// For memory that is neither this rank's nor mapped.
Path choose_path(const PathChoices& paths, const Transfer& what) noexcept {
  if (paths.cma) return Path::kCma;
  if (paths.pinned) return Path::kFirehose;
  if (paths.direct && !paths.bounce_first && !(what.is_put() && what.source_may_change))
    return Path::kDirect;
  if (paths.bounce) return Path::kBounce;
  return choose_messages(paths, what);
}

Status take_path(RmaThread& thread, Path path, const Transfer& what,
                 CompletionCounter& counter) noexcept {
  switch (path) {
    case Path::kCma: return copy_by_cma(thread, what);
    case Path::kFirehose: return transfer_pinned(thread, what, counter);
    case Path::kDirect: return transfer_direct(thread, what, counter);
    case Path::kBounce: return transfer_bounced(thread, what, counter);
    default: return transfer_by_messages(thread, path, what, counter);
  }
}

bool may_use_kernel(gex_TM_t tm, gex_Rank_t rank, uintptr_t remote, const void* local,
                    size_t bytes) noexcept {
  if (tm != &hydrant_world || rank >= hydrant_known_peers.count || handler_depth != 0 || bytes == 0)
    return false;
  // 0: not looked up yet; UINTPTR_MAX: this rank itself.
  const uintptr_t known = hydrant_known_peers.first[rank].size;
  const auto here = reinterpret_cast<uintptr_t>(local);
  return known != 0 && known != UINTPTR_MAX && paths(rank).quick_cma && here != 0 && remote != 0 &&
         here + bytes - 1 >= here && remote + bytes - 1 >= remote && !is_device_memory(local) &&
         !have_mappings();
}

// The address here of memory of a rank of the node that is mapped, beyond its attached segment; null: take
// another path.
std::byte* created_here(gex_Rank_t rank, const void* remote, const void* local,
                        size_t bytes) noexcept {
  if (rank >= hydrant_known_peers.count || rank == job().rank() || handler_depth != 0 ||
      bytes == 0 || local == nullptr || !paths(rank).mapped || is_device_memory(local))
    return nullptr;
  return static_cast<std::byte*>(
      job().memory->mapped(rank, reinterpret_cast<uintptr_t>(remote), bytes));
}

}  // namespace

Status transfer(const Transfer& what, CompletionCounter& counter) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) [[unlikely]]
    return no_state();
  const PathChoices& choices = paths(what.peer);
  if (what.immediate) {
    if (!are_exports_settled()) return Status::kNotReady;
  } else {
    settle_exports();
  }
  if (copy_here(*thread, choices, what)) return Status::kOk;
  own(counter, thread);
  const bool is_self = what.peer == job().rank();
  if (choices.pinned && !is_self && start_hit(*thread, what, counter)) return Status::kOk;
  if (choices.maps_files && !is_self) {
    if (copy_mapped(*thread, what)) return Status::kOk;
    note_unmapped(*thread, what.peer, what.remote, what.bytes);
  }
  const Path path = is_self ? choose_messages(choices, what) : choose_path(choices, what);
  const Status status = take_path(*thread, path, what, counter);
  // The transport cannot access this memory, but its owner may be able to: use messages.
  if (status != Status::kUnsupported) [[likely]] {
    if (!what.immediate && (is_self || path == Path::kCma)) poll_now_and_then();
    return status;
  }
  return take_path(*thread, choose_messages(choices, what), what, counter);
}

bool put_by_cma(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                size_t bytes) noexcept {
  const auto remote = reinterpret_cast<uintptr_t>(dest);
  if (!may_use_kernel(tm, rank, remote, source, bytes)) return false;
  if (job().memory->put(rank, remote, source, bytes, nullptr) != Status::kOk) return false;
  RmaThread& thread = *RmaThread::mine();
  thread.count(Direction::kPut, rank, Path::kCma, bytes);
  note_unmapped(thread, rank, remote, bytes);
  poll_now_and_then();
  return true;
}

bool get_by_cma(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                size_t bytes) noexcept {
  const auto remote = reinterpret_cast<uintptr_t>(source);
  if (!may_use_kernel(tm, rank, remote, dest, bytes)) return false;
  if (job().memory->get(rank, remote, dest, bytes, nullptr) != Status::kOk) return false;
  RmaThread& thread = *RmaThread::mine();
  thread.count(Direction::kGet, rank, Path::kCma, bytes);
  note_unmapped(thread, rank, remote, bytes);
  poll_now_and_then();
  return true;
}

bool put_to_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept {
  std::byte* here = created_here(rank, dest, source, bytes);
  if (here == nullptr) return false;
  copy_bytes(here, static_cast<const std::byte*>(source), bytes);
  RmaThread::mine()->count(Direction::kPut, rank, Path::kMapped, bytes);
  return true;
}

bool get_from_created(gex_Rank_t rank, void* dest, const void* source, size_t bytes) noexcept {
  const std::byte* here = created_here(rank, source, dest, bytes);
  if (here == nullptr) return false;
  copy_bytes(static_cast<std::byte*>(dest), here, bytes);
  RmaThread::mine()->count(Direction::kGet, rank, Path::kMapped, bytes);
  return true;
}

Status fill(Rank peer, uintptr_t remote, int value, size_t bytes,
            CompletionCounter& counter) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) [[unlikely]]
    return no_state();
  const PathChoices& choices = paths(peer);
  const bool is_self = peer == job().rank();
  settle_exports();
  if (is_self ? choices.self : choices.mapped) {
    if (std::byte* here = mapped_here(*thread, peer, remote, bytes); here != nullptr) {
      std::memset(here, value, bytes);
      thread->count(Direction::kPut, peer, is_self ? Path::kSelf : Path::kMapped, bytes);
      return Status::kOk;
    }
  }
  own(counter, thread);
  if (choices.cma && !is_self) {
    const Status status = fill_by_kernel(*thread, peer, remote, value, bytes);
    if (status != Status::kUnsupported) return status;
  }
  return fill_by_messages(*thread, peer, remote, value, bytes, counter);
}

Status check_transfer(gex_TM_t tm, gex_Rank_t rank, Transfer& what) noexcept {
  if (!is_wired()) [[unlikely]]
    return fail(Status::kNotInit, "no client is initialised");
  if (handler_depth != 0) [[unlikely]]
    return fail(Status::kBadArg, "a handler must not put or get");
  if (const Status status = resolve(tm, rank, &what.peer); status != Status::kOk) return status;
  if (job().debug) [[unlikely]]
    check_no_locks("a put or get is started");
  if (what.bytes == 0) return Status::kOk;
  const auto local = reinterpret_cast<uintptr_t>(what.local);
  if (local == 0 || what.remote == 0) [[unlikely]]
    return fail(Status::kBadArg, "%zu bytes, and the %s address is NULL", what.bytes,
                local == 0 ? "local" : "remote");
  if (local + what.bytes - 1 < local || what.remote + what.bytes - 1 < what.remote) [[unlikely]] {
    return fail(
        Status::kBadArg, "%zu bytes from %#zx on wrap around the address space", what.bytes,
        static_cast<size_t>(what.remote + what.bytes - 1 < what.remote ? what.remote : local));
  }
  if (checks_segments()) [[unlikely]] {
    if (const Status status =
            check_in_segment(what.peer, endpoints_of(tm).to, what.remote, what.bytes);
        status != Status::kOk)
      return status;
  }
  if (is_device_memory(what.local)) [[unlikely]]
    return fail(Status::kBadArg, "%p is memory of a device (GPU); only host memory can be %s",
                static_cast<void*>(what.local), what.is_put() ? "put" : "the target of a get");
  return Status::kOk;
}

}  // namespace hydrant
