// Writes the counters of puts, gets, firehoses, collectives, atomics and the transport at exit, as JSON or
// as a table (HYDRANT_STATS). Called by end_extended() (start.cpp); job_trace.cpp reads the table as well.
#include "extended/job_statistics.hpp"

#include <hydrant/rma.h>

#include "am/job/job.hpp"
#include "am/job/shared_environment.hpp"
#include "am/job/start_extended.hpp"
#include "extended/atomics/atomic_counts.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/pinned/on_demand.hpp"
#include "extended/team/mailbox_team.hpp"
#include "extended/team/node_team.hpp"
#include "extended/vis/vis_transfer.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr std::string_view kTable = "table:";
constexpr std::string_view kStandardError = "-";

// The file's name, with %r for the rank and %% for a percent sign; "-" for standard error. Empty: this rank
// writes no file.
std::string file_name() noexcept {
  const char* wish = knob_text(JobKnob::kStats);
  if (*wish == '\0') return "";
  std::string_view rest = wish;
  const std::string_view format = rest.starts_with(kTable) ? kTable : "json:";
  if (!rest.starts_with(format) || rest.size() == format.size()) {
    if (job().rank() == 0 || shared_environment().differs(knob_info(JobKnob::kStats).name)) {
      log_warning(
          "HYDRANT_STATS=%s: invalid value; set json:FILE or table:FILE, with %%r in FILE for the "
          "rank",
          wish);
    }
    return "";
  }
  rest.remove_prefix(format.size());
  if (rest == kStandardError) return std::string(rest);
  std::string name;
  bool is_of_rank = false;
  for (size_t i = 0; i < rest.size(); ++i) {
    const bool is_special = rest[i] == '%' && i + 1 < rest.size();
    if (is_special && rest[i + 1] == 'r') {
      name += std::to_string(hydrant_job_info.rank);
      is_of_rank = true;
      ++i;
    } else {
      if (is_special && rest[i + 1] == '%') ++i;
      name += rest[i];
    }
  }
  // Several ranks writing one file would overwrite each other.
  if (!is_of_rank && job().size() > 1 && job().rank() != 0) return "";
  if (!is_of_rank && job().size() > 1)
    log_warning("HYDRANT_STATS=%s: only rank 0 writes it; %%r in FILE makes one for each rank",
                wish);
  return name;
}

// Text in memory, which is written at once: ranks may share standard error.
class MemoryText {
 public:
  MemoryText() noexcept : file_(open_memstream(&text_, &bytes_)) {}
  ~MemoryText() {
    if (file_ != nullptr) (void)uncancelled::fclose(file_);
    std::free(text_);
  }
  MemoryText(const MemoryText&) = delete;
  MemoryText& operator=(const MemoryText&) = delete;

  FILE* file() const noexcept { return file_; }  // null: no memory
  // 0 or an errno.
  int write_to(int fd) noexcept {
    if (uncancelled::fflush(file_) != 0 || ferror(file_) != 0) return ENOMEM;
    return write_quietly(fd, text_, bytes_).error;
  }

 private:
  char* text_ = nullptr;
  size_t bytes_ = 0;
  FILE* file_;
};

// 0 or an errno.
int write_statistics(const std::string& name, MemoryText& text) noexcept {
  if (name == kStandardError) return text.write_to(STDERR_FILENO);
  const int fd = open_quietly(name.c_str(), O_TRUNC);
  if (fd < 0) return -fd;
  const int error = text.write_to(fd);
  return uncancelled::close(fd) != 0 && error == 0 ? errno : error;
}

// The names are fixed and need no escapes.
void write_rows(FILE* file) noexcept {
  const char* separator = "\n";
  for (Rank peer = 0; peer < job().size(); ++peer) {
    for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
      const auto path = static_cast<hydrant_path_t>(i);
      hydrant_path_counts_t counts;
      if (hydrant_query_path(peer, path, &counts) != GASNET_OK) continue;
      if (counts.put_ops + counts.get_ops == 0) continue;
      uncancelled::fprintf(file,
                           "%s    {\"peer\": %u, \"path\": \"%s\", \"put_ops\": %" PRIu64
                           ", \"put_bytes\": %" PRIu64 ", \"get_ops\": %" PRIu64
                           ", \"get_bytes\": %" PRIu64 "}",
                           separator, peer, hydrant_path_name(path), counts.put_ops,
                           counts.put_bytes, counts.get_ops, counts.get_bytes);
      separator = ",\n";
    }
  }
}

// Calls begin(kind) for each kind of firehose that this rank holds or exports, then row(name, value).
template <typename Begin, typename Row, typename End>
void for_each_firehose_count(Begin begin, Row row, End end) noexcept {
  struct {
    const char* kind;
    hydrant_remote_t end;
  } const ends[] = {{"pinned", the_firehose.end}, {"mapped", the_mappings.end}};
  for (const auto& of : ends) {
    hydrant_remote_stats_t s{};
    s.size = sizeof s;
    if (of.end == 0 || hydrant_remote_get_stats(of.end, &s) != GASNET_OK) continue;
    const struct {
      const char* name;
      uint64_t value;
    } rows[] = {
        {"hits", s.hits},
        {"moves", s.moves},
        {"joins", s.joins},
        {"evictions", s.evictions},
        {"recalled", s.recalled},
        {"firehoses", s.firehoses},
        {"served", s.served},
        {"declined", s.declined},
        {"recalls", s.recalls},
        {"reclaims", s.reclaims},
        {"exports", s.exports},
        {"exported_bytes", s.exported_bytes},
        {"lent_bytes", s.lent_bytes},
        {"zombies", s.zombies},
        {"zombie_bytes", s.zombie_bytes},
        {"requests", s.requests},
        {"replies", s.replies},
    };
    begin(of.kind);
    for (const auto& each : rows) row(each.name, each.value);
    end();
  }
}

void write_firehoses(FILE* file) noexcept {
  const char* separator = "\n";
  for_each_firehose_count(
      [&](const char* kind) {
        uncancelled::fprintf(file, "%s    {\"kind\": \"%s\"", separator, kind);
        separator = ",\n";
      },
      [&](const char* name, uint64_t value) {
        uncancelled::fprintf(file, ", \"%s\": %" PRIu64, name, value);
      },
      [&]() { uncancelled::fprintf(file, "}"); });
}

template <typename Row>
void for_each_transport_count(Row row) noexcept {
  std::array<Transport::Count, 32> rows;
  const Transport* transport = job().transport.get();
  const size_t count = transport != nullptr ? transport->list_counts(rows) : 0;
  for (const Transport::Count& each : std::span(rows).first(std::min(count, rows.size())))
    row(each.name, each.value);
}

// Only those that were used.
template <typename Row>
void for_each_collective(Row row) noexcept {
  const auto write = [&](const char* name, uint64_t count) {
    if (count != 0) row(name, count);
  };
  LineOperations::Counts on_node;
  (void)NodeTeam::add_counts_of_all(&on_node);
  write("lines", on_node.lines);
  write("mapped", on_node.mapped);
  write("slots", on_node.slots);
  write("mailboxes", MailboxTeam::operations_of_all());
  const auto counts = algorithm_counts();
  for (size_t i = 0; i < counts.size(); ++i)
    write(algorithm_name(static_cast<Algorithm>(i)), counts[i]);
}

// Vector, indexed and strided operations by path; only those that were used.
template <typename Row>
void for_each_vis_path(Row row) noexcept {
  for (size_t path = 0; path < RmaThread::kVisPaths; ++path) {
    uint64_t sums[2][2] = {};
    ThreadLocalPool<RmaThread>::for_each([&](const RmaThread& thread) {
      for (size_t i = 0; i < 2; ++i) {
        const PathCounts& counts = thread.vis_counts[i][path];
        sums[i][0] += __atomic_load_n(&counts.ops, __ATOMIC_RELAXED);
        sums[i][1] += __atomic_load_n(&counts.bytes, __ATOMIC_RELAXED);
      }
    });
    if (sums[0][0] + sums[1][0] == 0) continue;
    row(vis_path_name(static_cast<VisPath>(path)), sums);
  }
}

void write_vis(FILE* file) noexcept {
  const char* separator = "";
  for_each_vis_path([&](const char* path, const uint64_t(&sums)[2][2]) {
    uncancelled::fprintf(file,
                         "%s\n    {\"path\": \"%s\", \"put_ops\": %" PRIu64
                         ", \"put_bytes\": %" PRIu64 ", \"get_ops\": %" PRIu64
                         ", \"get_bytes\": %" PRIu64 "}",
                         separator, path, sums[0][0], sums[0][1], sums[1][0], sums[1][1]);
    separator = ",";
  });
}

template <typename Row>
void for_each_atomic_path(Row row) noexcept {
  const auto counts = atomic_counts();
  for (size_t i = 0; i < counts.size(); ++i)
    row(atomic_path_name(static_cast<AtomicPath>(i)), counts[i]);
}

// Writes what `each` lists as members of a JSON object.
template <typename Each>
void write_members(FILE* file, Each each) noexcept {
  const char* separator = "";
  each([&](const char* name, uint64_t count) {
    uncancelled::fprintf(file, "%s\"%s\": %" PRIu64, separator, name, count);
    separator = ", ";
  });
}

void write_json(FILE* file) noexcept {
  uncancelled::fprintf(
      file, "{\n  \"rank\": %u,\n  \"size\": %u,\n  \"transport\": \"%s\",\n  \"put_get\": [",
      job().rank(), job().size(), job().transport != nullptr ? job().transport->name() : "none");
  write_rows(file);
  uncancelled::fprintf(file, "\n  ],\n  \"firehoses\": [");
  write_firehoses(file);
  const OnDemandCounts on_demand = on_demand_counts();
  uncancelled::fprintf(file,
                       "\n  ],\n  \"on_demand\": {\"ops\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                       on_demand.ops, on_demand.bytes);
  uncancelled::fprintf(file, ",\n  \"collectives\": {");
  write_members(file, [](auto row) { for_each_collective(row); });
  uncancelled::fprintf(file, "},\n  \"vis\": [");
  write_vis(file);
  uncancelled::fprintf(file, "\n  ],\n  \"atomics\": {");
  write_members(file, [](auto row) { for_each_atomic_path(row); });
  uncancelled::fprintf(file, "},\n  \"transport_counts\": {");
  write_members(file, [](auto row) { for_each_transport_count(row); });
  uncancelled::fprintf(file, "}\n}\n");
}

// Lines of the table, from the general to the particular; parts without an operation are left out.
class Table {
 public:
  Table(void (*line)(void* user, const char* text) noexcept, void* user) noexcept
      : line_(line), user_(user) {}

  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) noexcept {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    line_(user_, text);
  }
  // The heading precedes the first row.
  void begin(const char* heading) noexcept { heading_ = heading; }
  void row(const char* name, uint64_t count) noexcept {
    if (count == 0) return;
    print_heading("count");
    print("  %-40s %10" PRIu64, name, count);
  }
  void row(const char* name, uint64_t puts, uint64_t put_bytes, uint64_t gets,
           uint64_t get_bytes) noexcept {
    if (puts + gets == 0) return;
    print_heading("      puts          bytes       gets          bytes");
    print("  %-40s %10" PRIu64 " %14" PRIu64 " %10" PRIu64 " %14" PRIu64, name, puts, put_bytes,
          gets, get_bytes);
  }

 private:
  void print_heading(const char* columns) noexcept {
    if (heading_ == nullptr) return;
    print("%-42s %10s", heading_, columns);
    heading_ = nullptr;
  }

  void (*line_)(void* user, const char* text) noexcept;
  void* user_;
  const char* heading_ = nullptr;
};

void list_puts_and_gets(Table& table) noexcept {
  const auto row = [&](gex_Rank_t rank, hydrant_path_t path, const char* name) {
    hydrant_path_counts_t counts;
    if (hydrant_query_path(rank, path, &counts) == GASNET_OK)
      table.row(name, counts.put_ops, counts.put_bytes, counts.get_ops, counts.get_bytes);
  };
  table.begin("puts and gets, by path");
  for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
    const auto path = static_cast<hydrant_path_t>(i);
    row(GEX_RANK_INVALID, path, hydrant_path_name(path));
  }
  table.begin("vector, indexed and strided ones, by path");
  for_each_vis_path([&](const char* path, const uint64_t(&sums)[2][2]) {
    table.row(path, sums[0][0], sums[0][1], sums[1][0], sums[1][1]);
  });
  table.begin("puts and gets, by rank and path");
  for (Rank rank = 0; rank < job().size(); ++rank) {
    for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
      const auto path = static_cast<hydrant_path_t>(i);
      char name[64];
      (void)std::snprintf(name, sizeof name, "rank %u, %s", rank, hydrant_path_name(path));
      row(rank, path, name);
    }
  }
}

}  // namespace

void list_counters(void (*line)(void* user, const char* text) noexcept, void* user) noexcept {
  if (!is_wired()) return;
  Table table(line, user);
  list_puts_and_gets(table);
  table.begin("remote atomics, by path");
  for_each_atomic_path([&](const char* name, uint64_t count) { table.row(name, count); });
  table.begin("collectives, by algorithm");
  for_each_collective([&](const char* name, uint64_t count) { table.row(name, count); });
  for_each_firehose_count(
      [&](const char* kind) {
        table.begin(std::string_view(kind) == "pinned" ? "firehoses to pinned memory"
                                                       : "firehoses to mapped memory");
      },
      [&](const char* name, uint64_t value) { table.row(name, value); }, [] {});
  table.begin("memory that the adapter paged on demand");
  const OnDemandCounts on_demand = on_demand_counts();
  table.row("operations", on_demand.ops);
  table.row("bytes", on_demand.bytes);
  table.begin("transport");
  for_each_transport_count([&](const char* name, uint64_t value) { table.row(name, value); });
}

void write_job_statistics() noexcept {
  if (!is_wired()) return;
  const std::string name = file_name();
  if (name.empty()) return;
  MemoryText memory;
  FILE* file = memory.file();
  if (file == nullptr) {
    log_warning("HYDRANT_STATS: cannot write %s: %s", name.c_str(), errno_text(ENOMEM));
    return;
  }
  if (std::string_view(knob_text(JobKnob::kStats)).starts_with(kTable)) {
    uncancelled::fprintf(file, "rank %u of %u over %s\n", job().rank(), job().size(),
                         job().transport != nullptr ? job().transport->name() : "no transport");
    list_counters(
        [](void* user, const char* text) noexcept {
          uncancelled::fprintf(static_cast<FILE*>(user), "%s\n", text);
        },
        file);
  } else {
    write_json(file);
  }
  if (const int error = write_statistics(name, memory); error != 0)
    log_warning(
        "HYDRANT_STATS: cannot write %s: %s", name.c_str(),
        error == ENXIO && is_pipe(name.c_str()) ? "the pipe has no reader" : errno_text(error));
}

}  // namespace hydrant
