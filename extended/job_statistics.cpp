// Writes the counters of puts, gets, firehoses, collectives, atomics and the transport as JSON at exit
// (HYDRANT_STATS). Called by end_extended() (start.cpp).
#include "extended/job_statistics.hpp"

#include <hydrant/rma.h>

#include "am/job/job.hpp"
#include "am/job/shared_environment.hpp"
#include "extended/atomics/atomic_counts.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/collective/algorithms.hpp"
#include "extended/collective/mailbox/mailbox_team.hpp"
#include "extended/collective/node/node_team.hpp"
#include "extended/rma/pinned/on_demand.hpp"
#include "extended/rma/rma_thread.hpp"
#include "extended/vis/vis_transfer.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace hydrant {
namespace {

// The file's name, with %r for the rank and %% for a percent sign. Empty: this rank writes no file.
std::string file_name() noexcept {
  const char* wish = knob_text(JobKnob::kStats);
  if (*wish == '\0') return "";
  std::string_view rest = wish;
  constexpr std::string_view kFormat = "json:";
  if (!rest.starts_with(kFormat) || rest.size() == kFormat.size()) {
    if (job().rank() == 0 || shared_environment().differs(knob_info(JobKnob::kStats).name)) {
      log_warning("HYDRANT_STATS=%s: invalid value; set json:FILE, with %%r in FILE for the rank",
                  wish);
    }
    return "";
  }
  rest.remove_prefix(kFormat.size());
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

// The names are fixed and need no escapes.
void write_rows(FILE* file) noexcept {
  const char* separator = "\n";
  for (Rank peer = 0; peer < job().size(); ++peer) {
    for (uint32_t i = 0; i < HYDRANT_PATH_COUNT; ++i) {
      const auto path = static_cast<hydrant_path_t>(i);
      hydrant_path_counts_t counts;
      if (hydrant_query_path(peer, path, &counts) != GASNET_OK) continue;
      if (counts.put_ops + counts.get_ops == 0) continue;
      fprintf(file,
              "%s    {\"peer\": %u, \"path\": \"%s\", \"put_ops\": %" PRIu64
              ", \"put_bytes\": %" PRIu64 ", \"get_ops\": %" PRIu64 ", \"get_bytes\": %" PRIu64 "}",
              separator, peer, hydrant_path_name(path), counts.put_ops, counts.put_bytes,
              counts.get_ops, counts.get_bytes);
      separator = ",\n";
    }
  }
}

// Writes a row for each kind of firehose that this rank holds or exports.
void write_firehoses(FILE* file) noexcept {
  struct {
    const char* kind;
    hydrant_remote_t end;
  } const ends[] = {{"pinned", the_firehose.end}, {"mapped", the_mappings.end}};
  const char* separator = "\n";
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
    fprintf(file, "%s    {\"kind\": \"%s\"", separator, of.kind);
    for (const auto& row : rows) fprintf(file, ", \"%s\": %" PRIu64, row.name, row.value);
    fprintf(file, "}");
    separator = ",\n";
  }
}

void write_transport(FILE* file) noexcept {
  std::array<Transport::Count, 32> rows;
  const Transport* transport = job().transport.get();
  const size_t count = transport != nullptr ? transport->list_counts(rows) : 0;
  const char* separator = "";
  for (const Transport::Count& row : std::span(rows).first(std::min(count, rows.size()))) {
    fprintf(file, "%s\"%s\": %" PRIu64, separator, row.name, row.value);
    separator = ", ";
  }
}

// Only those that were used.
void write_collectives(FILE* file) noexcept {
  const char* separator = "";
  const auto write = [&](const char* name, uint64_t count) {
    if (count == 0) return;
    fprintf(file, "%s\"%s\": %" PRIu64, separator, name, count);
    separator = ", ";
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
void write_vis(FILE* file) noexcept {
  const char* separator = "";
  for (size_t path = 0; path < kVisPaths; ++path) {
    uint64_t sums[2][2] = {};
    ThreadLocalPool<RmaThread>::for_each([&](const RmaThread& thread) {
      for (size_t i = 0; i < 2; ++i) {
        const hydrant_path_counts& counts = thread.vis_counts[i][path];
        sums[i][0] += __atomic_load_n(&counts.ops, __ATOMIC_RELAXED);
        sums[i][1] += __atomic_load_n(&counts.bytes, __ATOMIC_RELAXED);
      }
    });
    if (sums[0][0] + sums[1][0] == 0) continue;
    fprintf(file,
            "%s\n    {\"path\": \"%s\", \"put_ops\": %" PRIu64 ", \"put_bytes\": %" PRIu64
            ", \"get_ops\": %" PRIu64 ", \"get_bytes\": %" PRIu64 "}",
            separator, vis_path_name(static_cast<VisPath>(path)), sums[0][0], sums[0][1],
            sums[1][0], sums[1][1]);
    separator = ",";
  }
}

void write_atomics(FILE* file) noexcept {
  const auto counts = atomic_counts();
  const char* separator = "";
  for (size_t i = 0; i < counts.size(); ++i) {
    fprintf(file, "%s\"%s\": %" PRIu64, separator, atomic_path_name(static_cast<AtomicPath>(i)),
            counts[i]);
    separator = ", ";
  }
}

}  // namespace

void write_job_statistics() noexcept {
  if (!is_wired()) return;
  const std::string name = file_name();
  if (name.empty()) return;
  FILE* file = fopen(name.c_str(), "we");
  if (file == nullptr) {
    log_warning("HYDRANT_STATS: cannot write %s: %s", name.c_str(), errno_text(errno));
    return;
  }
  fprintf(file, "{\n  \"rank\": %u,\n  \"size\": %u,\n  \"transport\": \"%s\",\n  \"put_get\": [",
          job().rank(), job().size(),
          job().transport != nullptr ? job().transport->name() : "none");
  write_rows(file);
  fprintf(file, "\n  ],\n  \"firehoses\": [");
  write_firehoses(file);
  const OnDemandCounts on_demand = on_demand_counts();
  fprintf(file, "\n  ],\n  \"on_demand\": {\"ops\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
          on_demand.ops, on_demand.bytes);
  fprintf(file, ",\n  \"collectives\": {");
  write_collectives(file);
  fprintf(file, "},\n  \"vis\": [");
  write_vis(file);
  fprintf(file, "\n  ],\n  \"atomics\": {");
  write_atomics(file);
  fprintf(file, "},\n  \"transport_counts\": {");
  write_transport(file);
  fprintf(file, "}");
  const bool is_whole = fprintf(file, "\n}\n") > 0 && ferror(file) == 0;
  if (fclose(file) != 0 || !is_whole)
    log_warning("HYDRANT_STATS: cannot write %s: %s", name.c_str(), errno_text(errno));
}

}  // namespace hydrant
