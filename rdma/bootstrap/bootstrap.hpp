// Wire-up of the processes of a job: their ranks, the ranks that share a node, and a store of small entries.
// The store is filled before a fence and read on first contact. There is one object per process;
// rdma/open_bootstrap.hpp chooses its implementation (a job of one process, our own supervisor, PMIx, PMI-2).
//
// No process copies the store: get() requests one entry of one rank, and the caller keeps it with the
// connection that it belongs to.
//
// Threads: calls from one thread at a time. Errors: every call returns a Status with a text that names the
// queried component and the remedy; no call waits longer than its deadline.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hydrant {

using Rank = uint32_t;
inline constexpr Rank kNoRank = UINT32_MAX;

// The cause of a rank's exit, which determines what is reported about it.
enum class ExitReason : uint32_t {
  kExit,        // exit(3), or a return from main
  kGasnetExit,  // gasnet_exit()
  kAbandoned,   // the job was ending, or a peer lost, and this rank waited for others
};

// The layout of the job and the place of this process. The ranks of one node are sorted in ascending order in
// every process alike.
struct JobTopology {
  Rank rank = 0;
  Rank size = 1;
  uint32_t node = 0;  // index of this process's node
  uint32_t node_count = 1;
  std::vector<Rank> node_ranks = {0};  // the ranks of this node, this one included
  uint32_t node_rank = 0;              // index of this process in node_ranks
  // The first rank of each node, by node; empty if the launcher does not report it.
  std::vector<Rank> leaders = {0};
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // "alone", "hydrant-run", "fork", "pmix" or "pmi2": for messages.
  virtual const char* name() const noexcept = 0;
  virtual const JobTopology& topology() const noexcept = 0;

  // Stores an entry (at most kMaxValueBytes) under a key (at most 31 bytes), for other ranks to read after
  // the next fence. A key may be put only once: some launchers keep returning the first entry.
  static constexpr size_t kMaxValueBytes = 1024;
  virtual Status put(std::string_view key, std::span<const std::byte> entry) noexcept = 0;
  // Collective over the job: when it returns, every rank can read all entries that were put before.
  virtual Status fence(uint64_t deadline_ns) noexcept = 0;
  // A fence() for a rank whose network has to be polled meanwhile: the waiting thread calls `poll` about once
  // per millisecond. `poll` calls no function of this object but leave().
  using PollFn = void (*)() noexcept;
  static constexpr uint64_t kPollNs = 1'000'000;
  virtual Status fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept {
    static_cast<void>(poll);
    return fence(deadline_ns);
  }
  // Reads the entry of `rank`; *bytes is its length. kNotReady if it has none at the deadline.
  virtual Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
                     uint64_t deadline_ns) noexcept = 0;

  // A descriptor that becomes readable when the launcher has sent an event (the job is to end, a rank has
  // died). It is -1 if the launcher sends none, or the program has closed it. read_event() reads one event
  // and never waits.
  struct Event {
    enum class Kind : uint32_t { kNothing, kExit, kDeath, kLauncherExited } kind = Kind::kNothing;
    Rank rank = kNoRank;  // the rank that exited or died
    int code = 0;         // kExit: the exit code
    int signal = 0;       // kDeath: the signal that ended it, 0 if it exited
  };
  virtual int event_fd() const noexcept { return -1; }
  virtual Event read_event() noexcept { return {}; }
  // Pid of the process that sends the events of event_fd(), even if the program has closed that descriptor; 0
  // if there is none.
  virtual int supervisor() const noexcept { return 0; }

  // For launchers that report no exits (event_fd() is -1) but can forward exit notifications between nodes: a
  // descriptor that becomes readable when a rank has forwarded its exit, which read_event() reads; else -1.
  // If the program has closed it, read_event() still returns the notification. One rank per node receives
  // only the notification of the first rank that exits; later exits are left to the launcher.
  virtual int forwarded_exit_fd() const noexcept { return -1; }
  // Notifies ranks of other nodes that this process ends the job with `code`; called before leave().
  // `is_first`: this is the first rank of its node to exit. Never waits longer than the deadline; any thread,
  // once.
  virtual void forward_exit(int code, bool is_first, uint64_t deadline_ns) noexcept {
    static_cast<void>(code);
    static_cast<void>(is_first);
    static_cast<void>(deadline_ns);
  }

  // Notifies the launcher that this process ends the job with `code`. The process must exit soon after. Never
  // waits longer than the deadline; any thread, once.
  virtual void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept = 0;
};

// True if a call of this process, open_bootstrap() included, has failed because the job is being ended; the
// launcher reports the cause to the user. Any thread.
bool does_launcher_end_job() noexcept;

}  // namespace hydrant
