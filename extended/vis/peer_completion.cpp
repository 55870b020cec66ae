// Sends the messages of peer completion when their puts are complete, in polls. vis_calls.cpp starts such
// puts.
#include "extended/vis/peer_completion.hpp"

#include "am/handler/deliver.hpp"
#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/progress/unfinished.hpp"
#include "extended/message/handlers.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_thread.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <new>

namespace hydrant {

bool arm_completion(const PeerCompletion& completion) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr) return false;
  thread->completion = completion;
  thread->show_peers(completion.handler == 0);
  return true;
}

bool is_completion_armed() noexcept {
  const RmaThread* thread = RmaThread::mine();
  return thread != nullptr && thread->completion.handler != 0;
}

PeerCompletion take_completion() noexcept {
  RmaThread& thread = *RmaThread::mine();
  const PeerCompletion taken = thread.completion;
  thread.completion = {};
  thread.show_peers(true);
  return taken;
}

namespace {

struct Notice : Unfinished {
  Rank peer = 0;
  std::array<int32_t, 2> args = {};
  const void* source = nullptr;
  size_t bytes = 0;
  CompletionCounter pieces;
  CompletionCounter* operation = nullptr;
};

Status send_notice(const Notice& notice, bool immediate) noexcept {
  OutgoingMessage message;
  message.peer = notice.peer;
  message.category = Category::kMedium;
  message.handler = kVisPeerCompletionHandler;
  message.nargs = static_cast<uint32_t>(notice.args.size());
  message.args = notice.args.data();
  message.source = notice.source;
  message.bytes = notice.bytes;
  message.immediate = immediate;
  return send(message);
}

bool proceed_with_notice(Unfinished& operation) noexcept {
  auto& notice = static_cast<Notice&>(operation);
  const CompletionCounter& pieces = notice.pieces;
  if (!pieces.all_done()) return false;
  const int failure = pieces.failure.load(std::memory_order_relaxed);
  const Status status = failure != 0 ? static_cast<Status>(failure) : send_notice(notice, true);
  if (status == Status::kNotReady) return false;
  if (status == Status::kOk)
    count_done(*notice.operation);
  else
    count_failed(*notice.operation, status, notice.peer,
                 pieces.failed_at.load(std::memory_order_relaxed),
                 pieces.failed_bytes.load(std::memory_order_relaxed));
  delete &notice;
  return true;
}

Status start_data(const VisTransfer& what, CompletionCounter& pieces) noexcept {
  return what.bytes != 0 ? start_vis(what, pieces) : Status::kOk;
}

}  // namespace

Status start_with_completion(const VisTransfer& what, const PeerCompletion& completion,
                             const EndpointPair& endpoints, CompletionCounter& counter) noexcept {
  const auto fill = [&](Notice& notice) {
    notice.peer = what.peer;
    notice.args = {static_cast<int32_t>(completion.handler), endpoints.pack()};
    notice.source = completion.source;
    notice.bytes = completion.bytes;
  };
  std::unique_ptr<Notice> notice(new (std::nothrow) Notice);
  RmaThread* thread = RmaThread::mine();
  if (notice == nullptr || thread == nullptr) {
    // Without memory the call waits for the pieces.
    Notice here;
    fill(here);
    const Status started = start_data(what, here.pieces);
    const Status waited = wait_for(here.pieces);
    if (started != Status::kOk || waited != Status::kOk)
      return started != Status::kOk ? started : waited;
    return send_notice(here, false);
  }
  fill(*notice);
  const Status status = start_data(what, notice->pieces);
  if (status != Status::kOk) {
    (void)wait_for(notice->pieces);
    return status;
  }
  if (notice->pieces.all_done()) {
    const Status failure = failure_of(notice->pieces);
    return failure == Status::kOk ? send_notice(*notice, false) : failure;
  }
  if (counter.thread != thread) counter.thread = thread;
  notice->operation = &counter;
  count_start(counter, what.peer);
  notice->proceed = proceed_with_notice;
  continue_in_polls(*notice.release());
  return Status::kOk;
}

void run_peer_completion(gex_Token_t token, void* payload, size_t bytes, int32_t handler,
                         int32_t endpoints) {
  const EndpointPair pair = EndpointPair::unpack(endpoints);
  Tag tag;
  tag.handler = static_cast<uint32_t>(handler);
  tag.nargs = pair.are_primordial() ? 0 : Tag::kAddressed | 1;
  tag.category = Category::kMedium;
  run_handler(tag, token->from, false, &endpoints, payload, bytes);
}

}  // namespace hydrant
