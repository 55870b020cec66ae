// The process's part of the job: everything that exists once. There from the start, filled by the client's
// init, never destroyed: threads may be inside when the process ends.
//
// State only goes forward: new -> wired (between init and attach) -> attached; `ending` from anywhere.
#pragma once

#include <hydrant/gasnet/objects.h>
#include <hydrant/gasnet/system.h>

#include "am/handler_table.hpp"
#include "am/progress.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap.hpp"
#include "rdma/transport.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hydrant {

enum class JobState : uint32_t { kNew, kWired, kAttached };
inline constexpr uint32_t kEverything = 2;  // as Job::segment_mode

struct Job {
  std::atomic<JobState> state{JobState::kNew};
  // The job is to end: set by the control thread or by a call of exit; waits look at it.
  std::atomic<bool> ending{false};
  // gasnet_exit() was entered, or whatever else makes this process end.
  std::atomic<bool> exiting{false};

  bool single_threaded = true;  // SEQ and PARSYNC: one thread at a time is inside
  bool debug = false;           // the client was compiled with GASNET_DEBUG
  // Calls that tell other ranks something look more closely: debug, or there is a before_telling.
  bool careful = false;
  // Runs before this rank tells others anything, in handlers as well; set before the job is wired. What it
  // makes true, they may rely on when they are told. Null: nothing.
  void (*before_telling)() noexcept = nullptr;
  // True: it has nothing to do now. There where it is, and cheap.
  bool (*may_tell)() noexcept = nullptr;
  // Puts as much of a Long's payload as it can into memory of `peer`, from its front on: `*done` bytes, which
  // are there before a message sent later is delivered, and have left `source`. `may_wait`: it may poll.
  // Null: there is no such way. Errors: kBroken.
  Status (*put_long)(Rank peer, uintptr_t dest, const std::byte* source, size_t bytes,
                     bool may_wait, size_t* done) noexcept = nullptr;
  uint32_t segment_mode = 0;  // 0 FAST, 1 LARGE, 2 EVERYTHING

  std::unique_ptr<Bootstrap> bootstrap;
  // Held around calls of the bootstrap once client threads may make them at the same time.
  Mutex bootstrap_mu;
  // Null when the job has one rank.
  std::unique_ptr<Transport> transport;
  // The same for the control thread, which runs before there is one.
  std::atomic<Transport*> transport_to_wake{nullptr};
  ProgressTable progress;

  hydrant_client client = {};
  hydrant_endpoint endpoint = {};
  hydrant_segment segment = {};
  HandlerTable handlers;
  std::unique_ptr<std::string> client_name;

  Rank rank() const noexcept { return hydrant_job_info.rank; }
  Rank size() const noexcept { return hydrant_job_info.size; }
  const JobPlace& place() const noexcept { return bootstrap->place(); }
};

// Made by the compiler and never destroyed, so that job() is an address and no call.
union JobHolder {
  constexpr JobHolder() noexcept : the_job() {}
  // NOLINTNEXTLINE(modernize-use-equals-default): a union with such a member has no default one
  ~JobHolder() {}
  Job the_job;
};
extern constinit JobHolder job_holder;

// The one job of the process; always there, whatever its state.
inline Job& job() noexcept { return job_holder.the_job; }

inline bool is_wired() noexcept {
  return job().state.load(std::memory_order_acquire) != JobState::kNew;
}

// Wires the process up: rank, size, transport, control thread. Errors: as open_bootstrap(); kBadArg for
// headers of another layout; kNotInit if it was called before.
Status start_job(int* argc, char*** argv, const hydrant_client_info& info) noexcept;
// The client's objects. kResource if there is a client already.
Status make_client(const char* name, gex_Flags_t flags) noexcept;

// Ends the process and the job because something is wrong that the program cannot handle; the text goes to
// standard error with the rank before it.
[[noreturn, gnu::format(printf, 1, 2)]] void fatal(const char* format, ...) noexcept;

// Turns an internal failure into what a C function returns, with a line on standard error unless
// gex_System_SetVerboseErrors(0) was called; `always` asks nobody.
int report(Status status, const char* call, bool always = false) noexcept;

}  // namespace hydrant
