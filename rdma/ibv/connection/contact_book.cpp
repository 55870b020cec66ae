// Asks the launcher for endpoint addresses. Tour "first contact" begins here.
#include "rdma/ibv/connection/contact_book.hpp"

#include <algorithm>
#include <cstddef>

namespace hydrant::ibv {

namespace {

constexpr uint64_t kLookUpNs = 10'000'000'000;

}  // namespace

Status ContactBook::look_up(Rank rank, EndpointAddress* endpoint) noexcept {
  const MutexLock lock(mu_);
  return ask(rank, endpoint);
}

Status ContactBook::try_look_up(Rank rank, EndpointAddress* endpoint) noexcept {
  if (!mu_.try_lock()) return Status::kNotReady;
  const Status status = ask(rank, endpoint);
  mu_.unlock();
  return status;
}

Status ContactBook::ask(Rank rank, EndpointAddress* endpoint) noexcept {
  std::byte bytes[kMaxEndpointBytes + 1];
  size_t length = 0;
  const uint64_t deadline_ns = clock_() + kLookUpNs;
  const Status status = bootstrap_.get(rank, kEndpointKey, bytes, &length, deadline_ns);
  if (status == Status::kNotReady && clock_() >= deadline_ns)
    return fail(Status::kResource,
                "the launcher has not told the verbs endpoint address of rank %u within %llu s",
                rank, static_cast<unsigned long long>(kLookUpNs / 1'000'000'000));
  if (status == Status::kNotReady)
    return fail(Status::kBroken, "rank %u has no verbs endpoint address: it uses another transport",
                rank);
  if (status != Status::kOk) return status;
  if (decode_endpoint({bytes, std::min(length, sizeof bytes)}, endpoint) != Status::kOk)
    return Status::kBroken;
  return endpoint->group == 0
             ? Status::kOk
             : fail(Status::kBroken, "rank %u has the endpoint address of another job", rank);
}

}  // namespace hydrant::ibv
