// Hooks the calls that may take pages from a mapping of a file, which userfaultfd does not report.
#include "firehose/watch/hooks/real_calls.hpp"
#include "firehose/watch/hooks/watched_call.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>

using hydrant::hooks::file_changes;
using hydrant::hooks::real;

namespace {

// Modes that keep all pages in place. Any other mode may drop pages or move what lies behind them.
constexpr int kHarmlessModes = FALLOC_FL_KEEP_SIZE | FALLOC_FL_UNSHARE_RANGE;

void file_has_changed(void* /*unused*/) { file_changes(); }

}  // namespace

// Reports every call without comparing lengths: the file may grow between the comparison and the call.
int hook_ftruncate(int fd, off_t len) {
  file_changes();
  const int result = real.ftruncate(fd, len);
  file_changes();
  return result;
}
HYDRANT_EXPORT_HOOK(ftruncate);
HYDRANT_EXPORT_HOOK_AS(ftruncate64, ftruncate);

int hook_truncate(const char* path, off_t len) {
  file_changes();
  const int result = real.truncate(path, len);
  file_changes();
  return result;
}
HYDRANT_EXPORT_HOOK(truncate);
HYDRANT_EXPORT_HOOK_AS(truncate64, truncate);

// The cleanup handler reports the change if the thread is cancelled inside, after the kernel has made it.
int hook_fallocate(int fd, int mode, off_t offset, off_t len) {
  if ((mode & ~kHarmlessModes) == 0) return real.fallocate(fd, mode, offset, len);
  file_changes();
  int result = -1;
  pthread_cleanup_push(file_has_changed, nullptr);
  result = real.fallocate(fd, mode, offset, len);
  pthread_cleanup_pop(1);
  return result;
}
HYDRANT_EXPORT_HOOK(fallocate);
HYDRANT_EXPORT_HOOK_AS(fallocate64, fallocate);
