// Writes lines of traces and statistics. JobTrace (job_trace.cpp) owns both files.
#include "am/trace/trace_file.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
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
    fd_ = open_quietly(path_, O_APPEND | (is_first ? O_TRUNC : 0));
    has_no_reader_ = fd_ == -ENXIO && is_pipe(path_);
    if (has_no_reader_) {
      log_warning(
          "%s: the pipe %s has no reader; the first %zu KiB are kept until one comes; "
          "further lines are counted and lost",
          variable, path_, kBytes / 1024);
      return true;
    }
    if (fd_ < 0) {
      log_warning("%s: cannot write %s: %s; nothing is written", variable, path_, errno_text(-fd_));
      used_ = 0;
      return false;
    }
  }
  find_limit();
  return true;
}

void TraceFile::find_limit() noexcept {
  struct stat about = {};
  limit_ = fstat(fd_, &about) == 0 && S_ISREG(about.st_mode) ? kBytes : PIPE_BUF;
}

bool TraceFile::find_reader() noexcept {
  if (!has_no_reader_) return fd_ >= 0;
  const int fd = open_quietly(path_, O_APPEND);
  if (fd < 0) return false;
  has_no_reader_ = false;
  fd_ = fd;
  find_limit();
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
  if (fd_ < 0 && !is_expected_ && !has_no_reader_) return;
  if (used_ + bytes + 1 > limit_ && !has_no_reader_) flush();
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
  if (used_ == 0 || !find_reader()) return;
  write_buffer();
}

// By as many whole lines as another writer of the same pipe does not interrupt.
void TraceFile::write_buffer() noexcept {
  const char* const end = buffer_ + used_;
  for (const char* line = buffer_; line != end;) {
    const char* stop = line;
    do {
      const char* next = std::find(stop, end, '\n') + 1;
      if (stop != line && static_cast<size_t>(next - line) > limit_) break;
      stop = next;
    } while (stop != end);
    write_out(line, static_cast<size_t>(stop - line));
    line = stop;
  }
  used_ = 0;
}

void TraceFile::close() noexcept {
  flush();
  if (has_no_reader_) write_buffer();  // counts the lines
  has_no_reader_ = false;
  if (fd_ >= 0 && !is_standard_ && uncancelled::close(fd_) != 0 && !is_broken_)
    log_warning("%s: cannot write %s: %s", variable_, path_, errno_text(errno));
  fd_ = -1;
  if (lost_ != 0)
    log_warning("%s: %llu lines could not be written to %s", variable_,
                static_cast<unsigned long long>(lost_), path_);
}

}  // namespace hydrant
