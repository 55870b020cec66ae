// The file of a trace or of statistics: whole lines, buffered. A file that cannot be written costs one
// warning; what is lost from then on is counted. A pipe without a reader is opened when one has come, which
// flush() notices; until then the first lines are kept, the others are counted and lost.
//
// Threads: one at a time.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class TraceFile {
 public:
  // Shorter than a thread waits for another one that writes events.
  static constexpr uint64_t kPatienceNs = 900'000'000;
  // `patience_ns`: how long a write waits for room where the file has none and does not block, as a pipe
  // whose reader is slow. Then the file cannot be written.
  explicit TraceFile(uint64_t patience_ns = kPatienceNs) noexcept : patience_ns_(patience_ns) {}
  // Lines are kept until open(); without it they are dropped at once.
  void expect() noexcept { is_expected_ = true; }
  // Opens the file that `pattern` names: "stdout", "stderr" or "-" (standard error), else a path in which
  // each '%' stands for the rank. `is_first`: empties a file that exists. False: one warning that begins
  // with `variable` was logged.
  bool open(const char* variable, const char* pattern, Rank rank, bool is_first) noexcept;
  const char* path() const noexcept { return path_; }

  // Adds a line and its line break.
  void append(const char* line, size_t bytes) noexcept;
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) noexcept;
  // Writes what is buffered.
  void flush() noexcept;
  // Flushes and closes, and logs how many lines were lost, if any.
  void close() noexcept;
  uint64_t lost_lines() const noexcept { return lost_; }

 private:
  void write_out(const char* text, size_t bytes) noexcept;
  void write_buffer() noexcept;
  void find_limit() noexcept;
  // False: the file is not open, and cannot be opened now.
  bool find_reader() noexcept;

  static constexpr size_t kBytes = 65536;
  const uint64_t patience_ns_;
  int fd_ = -1;
  bool is_expected_ = false;
  bool has_no_reader_ = false;
  bool is_standard_ = false;
  bool is_broken_ = false;
  size_t limit_ = kBytes;  // a pipe or terminal takes 4 KiB as a whole, beside other writers
  size_t used_ = 0;
  uint64_t lost_ = 0;
  const char* variable_ = "";
  char path_[4096] = "";
  char buffer_[kBytes];
};

}  // namespace hydrant
