// Callbacks of completed requests, kept until poll() runs them.
//
// Invariant: a request is in the list from keep() to run(), and only run() takes it out. done_mu_ is a
// leaf; no callback runs under it.
//
// Threads: any.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/remote/channel/remote_channel.hpp"
#include "firehose/remote/initiator/remote_request.hpp"

#include <cstddef>

namespace hydrant {

class RemoteCompletions {
 public:
  explicit RemoteCompletions(RemoteChannel& channel) noexcept : channel_(channel) {}
  RemoteCompletions(const RemoteCompletions&) = delete;
  RemoteCompletions& operator=(const RemoteCompletions&) = delete;

  // `answer` need not outlive the call.
  void keep(RemoteRequest* request, const std::byte* answer, size_t answer_len) noexcept;
  // Runs all that were kept; returns their number.
  int run() noexcept;

 private:
  RemoteChannel& channel_;
  Mutex done_mu_;
  RemoteRequestList done_ HYDRANT_GUARDED_BY(done_mu_);
};

}  // namespace hydrant
