// Allocates operations from a free list. Tour "a put": posting takes an operation for a put that is not one
// work request, and the completion of its last part returns it.
#include "rdma/ibv/queue/operation_pool.hpp"

#include "rdma/ibv/queue/spin_guard.hpp"

#include <new>

namespace hydrant::ibv {

Status OperationPool::open(uint32_t count, bool threaded) noexcept {
  threaded_ = threaded;
  operations_.reset(new (std::nothrow) PooledOperation[count]);
  if (operations_ == nullptr) return fail(Status::kResource, "no memory for %u operations", count);
  count_ = count;
  for (uint32_t i = 0; i < count; ++i) {
    operations_[i].next_free = free_;
    free_ = &operations_[i];
  }
  return Status::kOk;
}

Status OperationPool::open_stripes() noexcept {
  stripes_.reset(new (std::nothrow) Stripe[size_t{count_} * kStripesEach]);
  if (stripes_ != nullptr) return Status::kOk;
  return fail(Status::kResource, "no memory for stripes of %u operations", count_);
}

PooledOperation* OperationPool::take() noexcept {
  PooledOperation* operation = nullptr;
  {
    const SpinGuard guard(lock_, threaded_);
    operation = free_;
    if (operation == nullptr) return nullptr;
    free_ = operation->next_free;
  }
  *operation = PooledOperation{};
  return operation;
}

void OperationPool::end(PooledOperation& operation, CompletionBatch* batch) noexcept {
  batch->add(operation.completion, operation.status);
  const SpinGuard guard(lock_, threaded_);
  operation.next_free = free_;
  free_ = &operation;
}

}  // namespace hydrant::ibv
