// Publishes the exit of the first rank that leaves, and looks up exits of ranks on other nodes
// (PMIx_Publish_nb, PMIx_Lookup_nb). bootstrap_pmix.cpp opens it for jobs of several nodes.
#include "rdma/bootstrap/bootstrap_pmix_exits.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr int kForEver = 1'000'000'000;  // seconds
constexpr uint64_t kEarlyNs = 1'000'000'000;
constexpr int kMaxEarly = 3;

void set_info(pmix_info_t* info, const char* key, int value) noexcept {
  *info = {};
  std::memcpy(info->key, key, strnlen(key, PMIX_MAX_KEYLEN));
  info->value.type = PMIX_INT;
  info->value.data.integer = value;
}

// Uses the session's range: Open MPI never completes a waiting lookup in PMIX_RANGE_NAMESPACE. The key
// contains the name of the job instead.
void set_range(pmix_info_t* info) noexcept {
  *info = {};
  std::strncpy(info->key, PMIX_RANGE, PMIX_MAX_KEYLEN);
  info->value.type = PMIX_DATA_RANGE;
  info->value.data.range = PMIX_RANGE_SESSION;
}

}  // namespace

PmixExits& PmixExits::of_process() noexcept {
  static PmixExits* const exits = new PmixExits;
  return *exits;
}

Status PmixExits::open(const Functions& functions, const pmix_proc_t& self, Rank size) noexcept {
  if (read_end_.number() >= 0) return Status::kOk;  // a process is in one job
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return fail(Status::kResource, "no pipe for exits of other nodes: %s", errno_text(errno));
  }
  read_end_.keep(ends[0]);
  write_end_.keep(ends[1]);
  functions_ = functions;
  size_ = size;
  self_ = self;
  std::snprintf(key_, sizeof key_, "hydrant/exit/%.*s", PMIX_MAX_NSLEN, self.nspace);
  set_range(&wanted_[0]);
  set_info(&wanted_[1], PMIX_WAIT, 0);
  set_info(&wanted_[2], PMIX_TIMEOUT, kForEver);
  return Status::kOk;
}

void PmixExits::answered() noexcept {
  const MutexLock lock(mutex_);
  --unanswered_;
  changed_.notify_all();
}

pmix_status_t PmixExits::listen() noexcept {
  {
    const MutexLock lock(mutex_);
    ++unanswered_;
    asked_ns_ = now_ns();
  }
  const pmix_status_t status = functions_.lookup(keys_, wanted_, 3, &on_found, this);
  if (status != PMIX_SUCCESS) answered();  // on_found() is not called then
  return status;
}

pmix_status_t PmixExits::publish(int code) noexcept {
  set_info(&published_[0], key_, code);
  set_range(&published_[1]);
  {
    const MutexLock lock(mutex_);
    ++unanswered_;
  }
  const pmix_status_t status = functions_.publish(published_, 2, &on_published, this);
  if (status != PMIX_SUCCESS) answered();
  return status;
}

void PmixExits::settle(uint64_t deadline_ns) noexcept {
  const MutexLock lock(mutex_);
  while (unanswered_ > 0) {
    if (!changed_.wait_until(mutex_, deadline_ns) && now_ns() >= deadline_ns) return;
  }
}

// An error needs no action: either another rank published first, so the nodes are notified, or the launcher
// has no store for published data.
void PmixExits::on_published(pmix_status_t, void* self) {
  static_cast<PmixExits*>(self)->answered();
}

void PmixExits::on_found(pmix_status_t result, pmix_pdata_t data[], size_t count, void* self) {
  auto& exits = *static_cast<PmixExits*>(self);
  if (result == PMIX_ERR_TIMEOUT && exits.may_ask_again()) exits.listen();
  for (size_t i = 0; result == PMIX_SUCCESS && i < count; ++i) exits.receive(data[i]);
  exits.answered();
}

// Repeats a lookup that timed out early: some launchers measure the timeout differently. After kMaxEarly
// immediate returns in a row it stops, for launchers that do not wait at all.
bool PmixExits::may_ask_again() noexcept {
  const MutexLock lock(mutex_);
  early_ = now_ns() - asked_ns_ < kEarlyNs ? early_ + 1 : 0;
  return early_ < kMaxEarly;
}

void PmixExits::receive(const pmix_pdata_t& data) noexcept {
  const bool good = std::strncmp(data.proc.nspace, self_.nspace, PMIX_MAX_NSLEN) == 0 &&
                    data.proc.rank < size_ && data.proc.rank != self_.rank &&
                    data.value.type == PMIX_INT;
  if (!good) return;
  {
    const MutexLock lock(mutex_);
    received_.push_back({.rank = data.proc.rank, .code = data.value.data.integer});
  }
  const char wake = 1;
  [[maybe_unused]] const ssize_t written = uncancelled::write(write_end_.get(), &wake, sizeof wake);
}

bool PmixExits::read(Rank* rank, int* code) noexcept {
  const MutexLock lock(mutex_);
  if (received_.empty()) return false;
  *rank = received_.front().rank;
  *code = received_.front().code;
  received_.pop_front();
  char wake = 0;
  ssize_t bytes = -1;
  do {
    bytes = uncancelled::read(read_end_.get(), &wake, sizeof wake);
  } while (bytes < 0 && errno == EINTR);
  return true;
}

}  // namespace hydrant
