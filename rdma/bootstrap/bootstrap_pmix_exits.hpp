// Words of exits between the nodes of a job by PMIx: the first rank that leaves publishes it, and one rank of
// each node has asked for what will be published. PMIx's events would be made for this, but Open MPI 4.1 with
// PMIx 4.2 stands still for ever after the first event of a rank (docs/launching.md).
//
// PMIx calls back in a thread of its own, until the process is gone: what it writes to is one object per
// process that is never destroyed. It passes notifications in memory and never waits; a pipe wakes the
// reader. If the program has closed the pipe, the reader finds the notification at its next look.
//
// Threads: fd() and read() belong to one thread, open() and listen() come before all others.
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
  // Asks PMIx for the exit of another rank, and does not wait for it: PMIX_SUCCESS, or what PMIx has against
  // that.
  pmix_status_t listen() noexcept;
  // Publishes that this process leaves with `code`; the answer is waited for by settle().
  pmix_status_t tell(int code) noexcept;
  // Waits until PMIx has answered all that it was asked: it complains of ranks that are gone by then.
  void settle(uint64_t deadline_ns) noexcept;

  // Readable when a rank has said something; -1 before open(), and when the program has closed it.
  int fd() const noexcept { return read_end_.get(); }
  // Takes one exit of another rank of this job; false if there is none.
  bool read(Rank* rank, int* code) noexcept;

 private:
  struct Message {
    Rank rank = 0;
    int32_t code = 0;
  };
  PmixExits() noexcept = default;
  static void on_published(pmix_status_t answer, void* self);
  static void on_found(pmix_status_t answer, pmix_pdata_t data[], size_t count, void* self);
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
  pmix_info_t wanted_[3] = {};  // PMIx may read both until it has answered
  pmix_info_t published_[2] = {};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Message> received_ HYDRANT_GUARDED_BY(mutex_);
  int unanswered_ HYDRANT_GUARDED_BY(mutex_) = 0;
  uint64_t asked_ns_ HYDRANT_GUARDED_BY(mutex_) = 0;
  int early_ HYDRANT_GUARDED_BY(mutex_) = 0;  // answers in a row that were no wait
};

}  // namespace hydrant
