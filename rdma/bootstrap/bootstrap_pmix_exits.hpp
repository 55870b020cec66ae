// Exit notifications between the nodes of a job through PMIx: the first rank that exits publishes its exit,
// and one rank of each node has a pending lookup for it. PMIx's events would fit better, but Open MPI 4.1
// with PMIx 4.2 hangs after the first event of a rank (docs/launching.md).
//
// PMIx calls back from a thread of its own until the process exits. Callbacks therefore write to one object
// per process that is never destroyed. They append notifications in memory and never wait; a pipe wakes the
// reader. If the program has closed the pipe, the reader finds the notification at its next check.
//
// Threads: fd() and read() belong to one thread; open() and listen() come before all other calls.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <pmix.h>

#include <deque>

namespace hydrant {

class PmixExits {
 public:
  struct Functions {
    decltype(&PMIx_Publish_nb) publish;
    decltype(&PMIx_Lookup_nb) lookup;
  };

  static PmixExits& of_process() noexcept;

  // `self` is this process in its job of `size` ranks. Errors: kResource: no pipe.
  Status open(const Functions& functions, const pmix_proc_t& self, Rank size) noexcept;
  // Starts a lookup of the exit of another rank, and does not wait for it. Returns PMIX_SUCCESS, or the error
  // of PMIx.
  pmix_status_t listen() noexcept;
  // Publishes that this process exits with `code`; settle() waits for the reply.
  pmix_status_t publish(int code) noexcept;
  // Waits until PMIx has replied to all requests: PMIx reports an error for requests of a process that has
  // exited.
  void settle(uint64_t deadline_ns) noexcept;

  // Readable when a notification has arrived; -1 before open(), and when the program has closed it.
  int fd() const noexcept { return read_end_.get(); }
  // Removes and returns one exit of another rank of this job; false if there is none.
  bool read(Rank* rank, int* code) noexcept;

 private:
  struct Message {
    Rank rank = 0;
    int32_t code = 0;
  };
  PmixExits() noexcept = default;
  static void on_published(pmix_status_t result, void* self);
  static void on_found(pmix_status_t result, pmix_pdata_t data[], size_t count, void* self);
  void receive(const pmix_pdata_t& data) noexcept;
  bool may_ask_again() noexcept;
  void answered() noexcept;

  Functions functions_{};
  KeptDescriptor read_end_;  // a byte for each exit
  KeptDescriptor write_end_;
  Rank size_ = 0;
  pmix_proc_t self_{};
  char key_[PMIX_MAX_KEYLEN + 1] = {};
  char* keys_[2] = {key_, nullptr};
  pmix_info_t wanted_[3] = {};  // PMIx may read both until it has replied
  pmix_info_t published_[2] = {};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Message> received_ HYDRANT_GUARDED_BY(mutex_);
  int unanswered_ HYDRANT_GUARDED_BY(mutex_) = 0;
  uint64_t asked_ns_ HYDRANT_GUARDED_BY(mutex_) = 0;
  int early_ HYDRANT_GUARDED_BY(mutex_) = 0;  // consecutive lookups that returned at once
};

}  // namespace hydrant
