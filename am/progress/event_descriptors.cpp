// Arms event descriptors, and sleeps for them in a thread. waiting_calls.cpp has the C functions.
#include "am/progress/event_descriptors.hpp"

#include "am/progress/unfinished.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace hydrant {
namespace {

// The longest wait of the thread for work.
constexpr uint64_t kRestNs = 3'600'000'000'000;

Status unknown(int descriptor) noexcept {
  return fail(Status::kBadArg, "%d is no event descriptor", descriptor);
}

}  // namespace

EventDescriptors::~EventDescriptors() {
  bool joins = false;
  {
    const MutexLock lock(mu_);
    ends_ = true;
    joins = has_thread_;
    changed_.notify_all();
  }
  if (joins) {
    if (options_.sleeping != nullptr) options_.sleeping->wake();
    uncancelled::pthread_join(thread_, nullptr);
  }
}

// ---- calls of the program ----

Status EventDescriptors::open(int* descriptor) noexcept {
  const MutexLock lock(mu_);
  Descriptor* const free = std::find_if(descriptors_.begin(), descriptors_.end(),
                                        [](auto& one) { return one.fd.number() < 0; });
  if (free == descriptors_.end())
    return fail(Status::kResource, "%u event descriptors are open already", kMax);
  if (const Status status = start_thread(); status != Status::kOk) return status;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0)
    return fail(Status::kResource, "cannot create an event descriptor: %s", errno_text(errno));
  // A descriptor that the program has closed may have had the same number.
  if (Descriptor* const closed = find(fd); closed != nullptr) {
    disarm(*closed);
    closed->fd.close();
  }
  free->fd.keep(fd);
  *descriptor = fd;
  return Status::kOk;
}

Status EventDescriptors::close(int descriptor) noexcept {
  const MutexLock lock(mu_);
  Descriptor* const one = find(descriptor);
  if (one == nullptr) return unknown(descriptor);
  disarm(*one);
  one->fd.close();
  return Status::kOk;
}

Status EventDescriptors::arm(int descriptor) noexcept {
  {
    const MutexLock lock(mu_);
    Descriptor* const one = find(descriptor);
    if (one == nullptr) return unknown(descriptor);
    if (one->fd.is_lost())
      return fail(Status::kBadArg, "the program has closed event descriptor %d", descriptor);
    // The announcement is renewed: polls since then may have ended what it has announced.
    disarm(*one);
    uint64_t count = 0;
    (void)!uncancelled::read(descriptor, &count, sizeof count);
  }
  Sleeping::Announcement announcement;
  if (!announce(&announcement)) return Status::kNotReady;
  const MutexLock lock(mu_);
  Descriptor* const one = find(descriptor);
  if (one == nullptr) {  // another thread has closed it meanwhile
    if (options_.sleeping != nullptr) options_.sleeping->end_sleep();
    return unknown(descriptor);
  }
  disarm(*one);  // another thread may have armed it meanwhile
  const uint64_t now = now_ns();
  if (last_event_ns_ == 0) last_event_ns_ = now;
  one->announcement = announcement;
  one->announcement.deadline_ns = std::min(announcement.deadline_ns, now + interval_ns(now));
  one->is_armed = true;
  one->armed_as = ++arms_;
  if (is_resting_) changed_.notify_all();
  if (one->announcement.deadline_ns < sleeps_until_ns_ && options_.sleeping != nullptr)
    options_.sleeping->wake();
  return Status::kOk;
}

// A sleep is announced first: what happens after the check ends it.
bool EventDescriptors::announce(Sleeping::Announcement* announcement) noexcept {
  Sleeping* const sleeping = options_.sleeping;
  if (sleeping != nullptr && !sleeping->announce_sleep(announcement)) return false;
  if (options_.has_events == nullptr || !options_.has_events()) return true;
  if (sleeping != nullptr) sleeping->end_sleep();
  return false;
}

EventDescriptors::Descriptor* EventDescriptors::find(int descriptor) noexcept {
  for (Descriptor& one : descriptors_) {
    if (descriptor >= 0 && one.fd.number() == descriptor) return &one;
  }
  return nullptr;
}

void EventDescriptors::disarm(Descriptor& one) noexcept {
  if (!one.is_armed) return;
  one.is_armed = false;
  if (options_.sleeping != nullptr) options_.sleeping->end_sleep();
}

uint64_t EventDescriptors::interval_ns(uint64_t now) noexcept {
  ProgressTable::SilentWork silent;
  if (options_.progress != nullptr) silent = options_.progress->silent_work();
  if (silent.added != silent_adds_) last_event_ns_ = now;
  silent_adds_ = silent.added;
  const uint64_t quarter = (now - last_event_ns_) / 4;
  // No message says that a peer has made room.
  return silent.is_there || has_unfinished()
             ? std::clamp(quarter, options_.silent_interval_ns, options_.min_interval_ns)
             : std::clamp(quarter, options_.min_interval_ns, options_.max_interval_ns);
}

// ---- the thread ----

Status EventDescriptors::start_thread() noexcept {
  if (has_thread_) return Status::kOk;
  const int error = create_thread_without_signals(&thread_, run_thread, this);
  if (error != 0)
    return fail(Status::kResource, "cannot create the thread of event descriptors: %s",
                errno_text(error));
  has_thread_ = true;
  return Status::kOk;
}

void* EventDescriptors::run_thread(void* self) noexcept {
  pthread_setname_np(pthread_self(), "hydrant events");
  static_cast<EventDescriptors*>(self)->run();
  return nullptr;
}

void EventDescriptors::run() noexcept {
  for (;;) {
    Sleeping::Announcement announcement;
    uint64_t deadline_ns = 0;
    {
      const MutexLock lock(mu_);
      while (!ends_ && !oldest(&announcement)) {
        is_resting_ = true;
        (void)changed_.wait_until(mu_, now_ns() + kRestNs);
        is_resting_ = false;
      }
      if (ends_) return;
      deadline_ns = next_deadline_ns();
      sleeps_until_ns_ = deadline_ns;
    }
    const bool has_event = sleep_for(announcement, deadline_ns);
    const MutexLock lock(mu_);
    sleeps_until_ns_ = 0;
    if (has_event) last_event_ns_ = now_ns();
    report(has_event);
  }
}

bool EventDescriptors::sleep_for(const Sleeping::Announcement& announcement,
                                 uint64_t deadline_ns) noexcept {
  if (options_.sleeping != nullptr)
    return options_.sleeping->sleep_announced(announcement, deadline_ns);
  const MutexLock lock(mu_);
  while (!ends_ && now_ns() < deadline_ns) (void)changed_.wait_until(mu_, deadline_ns);
  return false;
}

// Makes all armed descriptors readable, or only those whose deadline has come. Newer announcements than the
// one that an event has ended are reported, too: the event may have been after them.
void EventDescriptors::report(bool all) noexcept {
  const uint64_t now = now_ns();
  for (Descriptor& one : descriptors_) {
    if (!one.is_armed || (!all && now < one.announcement.deadline_ns)) continue;
    disarm(one);
    const uint64_t event = 1;
    if (const int fd = one.fd.get(); fd >= 0) (void)!uncancelled::write(fd, &event, sizeof event);
  }
}

bool EventDescriptors::oldest(Sleeping::Announcement* announcement) const noexcept {
  const Descriptor* found = nullptr;
  for (const Descriptor& one : descriptors_) {
    if (one.is_armed && (found == nullptr || one.armed_as < found->armed_as)) found = &one;
  }
  if (found != nullptr) *announcement = found->announcement;
  return found != nullptr;
}

uint64_t EventDescriptors::next_deadline_ns() const noexcept {
  uint64_t next = UINT64_MAX;
  for (const Descriptor& one : descriptors_) {
    if (one.is_armed) next = std::min(next, one.announcement.deadline_ns);
  }
  return next;
}

}  // namespace hydrant
