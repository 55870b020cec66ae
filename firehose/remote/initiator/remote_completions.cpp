// Keeps the callbacks of requests (remote_completions.hpp): PeerCache::complete() and poll() call it.
#include "firehose/remote/initiator/remote_completions.hpp"

namespace hydrant {

void RemoteCompletions::keep(RemoteRequest* request, const std::byte* answer,
                             size_t answer_len) noexcept {
  if (answer_len != 0 && !request->answer.reserve(answer_len)) {
    // Without memory for the reply's data the request has failed.
    if (request->pin.region != nullptr) (void)hydrant_remote_release(request->pin);
    request->pin = {nullptr, GASNET_ERR_RESOURCE};
    request->outcome.status = GASNET_ERR_RESOURCE;
    answer_len = 0;
  }
  request->answer.add(answer, answer_len);
  {
    MutexLock lock(done_mu_);
    done_.push(request);
  }
  channel_.mark_any_pending();
}

int RemoteCompletions::run() noexcept {
  RemoteRequest* list = nullptr;
  {
    MutexLock lock(done_mu_);
    list = done_.take_all();
  }
  int ran = 0;
  while (list != nullptr) {
    RemoteRequest* request = list;
    list = request->next;
    request->outcome.answer = request->answer.data();
    request->outcome.answer_len = request->answer.size();
    request->done(request->context, request->pin, &request->outcome);
    request->drop();
    ++ran;
  }
  return ran;
}

}  // namespace hydrant
