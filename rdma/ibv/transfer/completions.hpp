// Reads the completion queues: ends posted requests, and passes arrived messages to Receiving. A send
// completion ends its own request and all before it on the same queue pair.
//
// Invariant: positions of a send queue end in order, each once.
//
// Threads: any. A single thread at a time reads a queue; others return at once.
#pragma once

#include "firehose/base/log.hpp"
#include "rdma/ibv/queue/completion_batch.hpp"
#include "rdma/ibv/queue/completion_queue.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/transfer/disconnector.hpp"
#include "rdma/ibv/transfer/peer.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/receiving.hpp"
#include "rdma/ibv/transfer/striping.hpp"

#include <cstdint>

namespace hydrant::ibv {

class Completions {
 public:
  Completions(Rails& rails, Receiving& receiving, OperationPool& pool, Striping& striping,
              const Poster& poster, Disconnector& disconnector) noexcept
      : rails_(rails),
        receiving_(receiving),
        pool_(pool),
        striping_(striping),
        poster_(poster),
        disconnector_(disconnector) {}
  // Errors: kResource.
  Status open(const GrowingCompletionQueue::Config& config) noexcept {
    port_ = config.port;
    threaded_ = config.threaded;
    return queue_.open(config);
  }
  // The queue pairs on the queue must be destroyed before.
  void close() noexcept { queue_.close(); }
  // The queue of the first port.
  GrowingCompletionQueue& queue() noexcept { return queue_; }

  // Reads a batch from the queue of the first port. Returns the number of completions; less than 0: another
  // thread reads, or the queue cannot be read. *ended: operations that ended.
  int poll(uint32_t* ended) noexcept;
  // Reads a batch from the queue of each rail. Returns the number of operations that ended.
  uint32_t poll_rails() noexcept;
  // Ends what is posted for a disconnected and abandoned peer, behind what has completed. False: try again.
  // Adds to *ended the operations that ended.
  bool end_abandoned(Peer& peer, uint32_t* ended) noexcept;

 private:
  static constexpr int kBatch = CompletionBatch::kCapacity;

  uint32_t end_request(const ibv_wc& completion) noexcept;
  uint32_t end_requests(const ibv_wc& completion) noexcept;
  void release(Peer& peer, SendRecord& record, Status status, CompletionBatch* batch) noexcept;
  bool end_posted(SendQueue& queue, GrowingCompletionQueue& completions, uint32_t* ended) noexcept;
  uint32_t fail_posted(SendQueue& queue) noexcept;
  void report_failure(SendQueue& queue, const ibv_wc& completion) noexcept;
  void report_unreadable(const Port& port) noexcept;

  GrowingCompletionQueue queue_;
  Rails& rails_;
  Receiving& receiving_;
  OperationPool& pool_;
  Striping& striping_;
  Poster poster_;
  Disconnector& disconnector_;
  const Port* port_ = nullptr;
  bool threaded_ = true;
  RateLimit unreadable_{RateLimit::kSecond};
};

// ---- the fast path, inline in the transport's poll ----

// The usual completion: a whole operation, with no request before it. Only the reading thread moves
// completed(), so no lock is needed.
inline uint32_t Completions::end_request(const ibv_wc& completion) noexcept {
  const SendRecord& record = SendQueue::record_of(completion);
  SendQueue& queue = *record.queue;
  if (completion.status != IBV_WC_SUCCESS || record.holds != SendRecord::Holds::kOperation ||
      record.position != queue.completed()) [[unlikely]]
    return end_requests(completion);
  Completion* const operation = record.completion;
  queue.complete(record.position + 1);
  if (operation != nullptr) operation->done(*operation, Status::kOk);
  return 1;
}

inline int Completions::poll(uint32_t* ended) noexcept HYDRANT_NO_TSA {
  if (!queue_.try_lock()) return -1;
  ibv_wc completions[kBatch];
  const int count = queue_.poll(completions, kBatch);
  uint32_t operations = 0;
  for (int i = 0; i < count; ++i) {
    if (SendQueue::is_send(completions[i])) {
      operations += end_request(completions[i]);
    } else {
      receiving_.accept(completions[i]);
    }
  }
  *ended = operations;
  if (count < 0) [[unlikely]]
    report_unreadable(*port_);
  queue_.unlock();
  return count;
}

}  // namespace hydrant::ibv
