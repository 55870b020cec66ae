// The process's part of the job: the state that exists once per process. Statically allocated, filled
// by the client's init, and never destroyed, because threads may be inside library calls at process
// exit.
//
// State only advances: new -> wired (between init and attach) -> attached; `ending` may be set in any
// state.
#pragma once

#include <hydrant/gasnet/objects.h>
#include <hydrant/gasnet/system.h>

#include "am/job/handler_table.hpp"
#include "am/job/progress_table.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant {

enum class JobState : uint32_t { kNew, kWired, kAttached };
inline constexpr uint32_t kSegmentEverything = 2;  // value of Job::segment_mode

struct Job {
  std::atomic<JobState> state{JobState::kNew};
  // The job is ending: set by the control thread or by an exit call. Every wait checks it.
  std::atomic<bool> ending{false};
  // This process is exiting, by gasnet_exit() or otherwise.
  std::atomic<bool> exiting{false};

  bool single_threaded = true;  // SEQ and PARSYNC: at most one thread is inside the library
  bool debug = false;           // the client was compiled with GASNET_DEBUG
  // Handlers run with cancellation off. A SEQ program needs no guard: its only thread leaves no other behind.
  bool guards_handlers = false;
  bool checks_calls = false;  // debug or traced: see in_call.hpp
  // Calls that send to other ranks run check_before_send() first, and take no short way: set for debug
  // clients, if hooks.before_send is set, and in a job that is traced.
  bool careful = false;
  struct LongPayload {
    Rank peer;
    uintptr_t dest;
    const std::byte* source;
    size_t bytes;
    bool may_wait;      // the call may poll
    gex_Event_t* leaf;  // as OutgoingMessage::leaf
  };
  // Functions of the extended API that the core calls; null if there is no need. Set before the job is wired.
  struct Hooks {
    // Runs before this rank sends a message or otherwise signals other ranks, also in handlers. It makes
    // true the guarantees that they rely on after the message.
    void (*before_send)() noexcept = nullptr;
    // Returns true if before_send has no work now. Set together with it; cheap.
    bool (*can_send)() noexcept = nullptr;
    // Puts the first `*done` bytes of a Long's payload into memory of a peer, as many as it can. They
    // arrive before a message that is sent later. The source may be reused, or `leaf` says when.
    // Null if no transport can do this. Errors: kBroken.
    Status (*put_long)(const LongPayload& payload, size_t* done) noexcept = nullptr;
    // Called when the library has allocated memory for a created segment, and before any created segment
    // ends.
    void (*segment_memory_begins)(void* addr, size_t bytes) noexcept = nullptr;
    void (*segment_memory_ends)(void* addr, size_t bytes) noexcept = nullptr;
    // False if a team other than the primordial one was destroyed. Null but for clients with GASNET_DEBUG.
    bool (*is_live_team)(gex_TM_t tm) noexcept = nullptr;
  };
  Hooks hooks;
  uint32_t segment_mode = 0;  // 0 FAST, 1 LARGE, 2 EVERYTHING

  std::unique_ptr<Bootstrap> bootstrap;
  // Serialises calls of the bootstrap once several client threads may make them. Handlers do not wait for it
  // while is_store_busy() (am/segment/segments.hpp).
  Mutex bootstrap_mu;
  // Null when the job has one rank. Set by use(), as its parts are.
  std::unique_ptr<Transport> transport;
  std::unique_ptr<MessageChannel*[]> channels;  // by rank
  uint32_t payload_bytes = UINT32_MAX;          // of the longest Medium that every rank takes
  MemoryAccess* memory = nullptr;               // never null after use()
  Sleeping* sleeping = nullptr;
  PinnedOperations* pinned = nullptr;  // null also without them
  // Copy of `transport` for the control thread: null until the transport exists, because the thread starts
  // earlier.
  std::atomic<Transport*> transport_to_wake{nullptr};
  ProgressTable progress;

  hydrant_client client = {};
  hydrant_endpoint endpoint = {};
  hydrant_segment segment = {};
  HandlerTable handlers;
  std::unique_ptr<std::string> client_name;

  // Errors: kResource; kUnsupported: the network's messages are too short.
  Status use(std::unique_ptr<Transport> network) noexcept;
  Rank rank() const noexcept { return hydrant_job_info.rank; }
  Rank size() const noexcept { return hydrant_job_info.size; }
  const JobTopology& topology() const noexcept { return bootstrap->topology(); }
};

// Initialised by the compiler and never destroyed, so that job() is an address and not a call.
union JobHolder {
  constexpr JobHolder() noexcept : the_job() {}
  // NOLINTNEXTLINE(modernize-use-equals-default): a union with such a member has no default one
  ~JobHolder() {}
  Job the_job;
};
extern constinit JobHolder job_holder;

// The process's only job; valid in every state.
inline Job& job() noexcept { return job_holder.the_job; }

inline bool is_wired() noexcept {
  return job().state.load(std::memory_order_acquire) != JobState::kNew;
}

// Reports an error that the program cannot handle, on standard error with the rank, and ends the
// process and the job.
[[noreturn, gnu::format(printf, 1, 2)]] void fatal(const char* format, ...) noexcept;

// Converts an internal status to the result of a C function. Logs an error, unless
// gex_System_SetVerboseErrors(0) was called; `always` ignores that setting.
int report(Status status, const char* call, bool always = false) noexcept;

}  // namespace hydrant
