// Writes lines of traces and statistics. JobTrace (job_trace.cpp) owns both files.
#include "am/trace/trace_file.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant {
namespace {

// False: the name is too long.
bool replace_rank(const char* pattern, Rank rank, char* path, size_t room) noexcept {
  size_t used = 0;
  for (; *pattern != '\0'; ++pattern) {
    const int bytes = *pattern == '%' ? std::snprintf(path + used, room - used, "%u", rank)
                                      : std::snprintf(path + used, room - used, "%c", *pattern);
    used += static_cast<size_t>(bytes);
    if (used >= room) return false;
  }
  return true;
}

}  // namespace

bool TraceFile::open(const char* variable, const char* pattern, Rank rank, bool is_first) noexcept {
  variable_ = variable;
  is_expected_ = false;
  const std::string_view name(pattern);
  is_standard_ = name == "stdout" || name == "stderr" || name == "-";
  if (is_standard_) {
    fd_ = name == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
    (void)std::snprintf(path_, sizeof path_, "%s", pattern);
  } else if (!replace_rank(pattern, rank, path_, sizeof path_)) {
    log_warning("%s: the name has more than %zu bytes; nothing is written", variable,
                sizeof path_ - 1);
    return false;
  } else {
    // Appending: ranks may share a file, as whole lines.
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (is_first ? O_TRUNC : 0);
    fd_ = ::open(path_, flags, 0666);
    if (fd_ < 0) {
      log_warning("%s: cannot write %s: %s; nothing is written", variable, path_,
                  errno_text(errno));
      used_ = 0;
      return false;
    }
  }
  struct stat about = {};
  limit_ = fstat(fd_, &about) == 0 && S_ISREG(about.st_mode) ? kBytes : 4096;
  return true;
}

void TraceFile::write_out(const char* text, size_t bytes) noexcept {
  size_t written = 0;
  if (!is_broken_ && fd_ >= 0) {
    const Written done = write_quietly(fd_, text, bytes, patience_ns_);
    written = done.bytes;
    is_broken_ = done.error != 0;
    if (is_broken_)
      log_warning("%s: cannot write %s: %s; what follows is counted and lost", variable_, path_,
                  errno_text(done.error));
  }
  lost_ += static_cast<uint64_t>(std::count(text + written, text + bytes, '\n'));
}

void TraceFile::append(const char* line, size_t bytes) noexcept {
  if (fd_ < 0 && !is_expected_) return;
  if (used_ + bytes + 1 > limit_) flush();
  if (used_ + bytes + 1 > limit_) {
    write_out(line, bytes);
    write_out("\n", 1);
    return;
  }
  std::memcpy(buffer_ + used_, line, bytes);
  used_ += bytes;
  buffer_[used_++] = '\n';
}

void TraceFile::print(const char* format, ...) noexcept {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int bytes = std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  append(line, std::min(static_cast<size_t>(std::max(bytes, 0)), sizeof line - 1));
}

void TraceFile::flush() noexcept {
  if (used_ == 0 || fd_ < 0) return;
  write_out(buffer_, used_);
  used_ = 0;
}

void TraceFile::close() noexcept {
  if (fd_ < 0) return;
  flush();
  if (!is_standard_ && ::close(fd_) != 0 && !is_broken_)
    log_warning("%s: cannot write %s: %s", variable_, path_, errno_text(errno));
  fd_ = -1;
  if (lost_ != 0)
    log_warning("%s: %llu lines could not be written to %s", variable_,
                static_cast<unsigned long long>(lost_), path_);
}

}  // namespace hydrant
