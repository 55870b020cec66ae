// Question: what do puts cost into a peer's memory that has to be registered first? This repeats the
// comparison of the firehose paper of 2003 (Bell and Bonachea, "A New DMA Registration Strategy for
// Pinning-Based High Performance Networks") on this library's remote pins.
//
// Unit: nanoseconds per put, on simulated clocks. One thread runs all ranks in turn. Each rank's clock
// advances by the real time of its work (protocol, look-ups, registrations by uring or mlock) and jumps to
// the arrival of the message that it waits for. A message takes `delay` to the other side, as do a put's
// bytes, which the target's adapter copies, and the completion. The wire carries 200 Gbit/s. So the figures
// do not depend on the number of cores or on other load.
//
// sweep     random puts of 8 bytes, one at a time, and of 64 KiB, 8 in flight, to a working set of 10 to 400
//           percent of what the target may pin (16 MiB, or an eighth of the limit on locked memory), by
//             firehose          hydrant_remote_pin; 8 bytes travel inside the move if there is one
//             rendezvous_unpin  request, the target registers, put, request to unregister
//             rendezvous_keep   the same, but this library caches the target's registrations
//             bounce            copy through registered buffers on both sides
//             pin_everything    all registered at the start: the bound, which ignores the budget
//           uniform, and (zipf) some places much more often than others
// kernels   the puts of Cannon's matrix multiplication and of a bitonic sort, on 16 ranks, from a cold start
// sharing   1 to 8 initiators put to the same pages: how often is a page registered?
// leases    6 of 64 peers use the target's memory: their hits with quotas that are lent, and with a fixed
//           division
//
// Goals: firehose within 5 % of pin_everything where the set fits, and not slower than either rendezvous
// anywhere; a page is registered about once; leases give 1.5 times the hits. A cell that misses a goal says
// NO.
//
// firehose_bench [--repetitions N] [--wire GBITS] [--json FILE] [--quick]
//
// FIREHOSE_REGISTRAR chooses the registrar; with ibv, memory is registered with the first verbs device.
//
// Figures are medians over the repetitions, in which all ways take turns; ratios are medians of the ratios
// within each. Time in which the system ran other processes on the core does not count. Each put of the sweep
// is checked for arrival.
//
// Not included: registering the source (registered in all cases but bounce, which copies); the bandwidth of
// memory itself (--wire 0 uses the real time of the copies as the wire's); an adapter's doorbells and
// completions: posting a put and polling its completion costs about 70 ns here, the time of pin_everything
// without delay.
#include "bench/support/option_error.hpp"
#include "bench/support/put_report.hpp"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sys/utsname.h>

namespace {

using namespace hydrant::bench;

struct Options {
  uint32_t repetitions = 9;
  double wire_gbits = 200;
  std::string json_file;
  bool quick = false;
};

PutSweepPlan uniform_plan(const Options& options) {
  PutSweepPlan plan;
  plan.budget_bytes = put_budget_bytes();
  plan.bytes = {8, 64 * kKiB};
  plan.percents = {10, 25, 50, 75, 90, 100, 125, 150, 200, 300, 400};
  plan.delays_ns = {0, 2000, 10000};
  plan.wire_rate = options.wire_gbits / 8;
  plan.repetitions = options.repetitions;
  if (options.quick) {
    plan.percents = {25, 100, 200};
    plan.delays_ns = {0, 2000};
  }
  return plan;
}

PutSweepPlan zipf_plan(const Options& options) {
  PutSweepPlan plan = uniform_plan(options);
  plan.zipf = true;
  plan.percents =
      options.quick ? std::vector<unsigned>{200} : std::vector<unsigned>{50, 100, 200, 400};
  plan.delays_ns = {2000};
  return plan;
}

Json measure(const Options& options) {
  utsname system{};
  uname(&system);
  const PutSweepPlan uniform = uniform_plan(options);
  Domain probe(put_domain_options(uniform.budget_bytes));
  const char* registrar = hydrant_registrar_name(probe.get());
  std::printf("Remote pins; registrar %s, Linux %s, budget %llu KiB, wire %g Gbit/s\n", registrar,
              system.release, static_cast<unsigned long long>(uniform.budget_bytes / kKiB),
              options.wire_gbits);
  Json out = {{"registrar", registrar},
              {"kernel", system.release},
              {"budget_bytes", uniform.budget_bytes},
              {"wire_gbits", options.wire_gbits},
              {"repetitions", options.repetitions}};
  std::vector<PutCell> cells = run_put_sweep(uniform);
  const std::vector<PutCell> zipf = run_put_sweep(zipf_plan(options));
  cells.insert(cells.end(), zipf.begin(), zipf.end());
  out["sweep"] = report_sweep(cells);
  constexpr uint64_t kDelay = 2000;
  out["kernels"] =
      report_kernels(run_kernels(kDelay, uniform.wire_rate, options.repetitions, options.quick));
  out["sharing"] = report_sharing(run_sharing(uniform.budget_bytes, kDelay));
  out["leases"] = report_leases(run_leases(uniform.budget_bytes, kDelay, options.quick));
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kUsage = 2;
  CLI::App app(kAbout);
  Options options;
  app.add_option("--repetitions", options.repetitions, "Repetitions of every cell, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--wire", options.wire_gbits,
                 "Rate of the wire in Gbit/s; 0: the speed of the memory copy")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--json", options.json_file,
                 "Also write the results, with all samples, to this file");
  app.add_flag("--quick", options.quick, "Fewer cells and shorter kernels");
  app.failure_message(option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return error.get_exit_code() == 0 ? 0 : kUsage;
  }
  if (put_budget_bytes() == 0) {
    std::fprintf(
        stderr,
        "firehose_bench: the limit on locked memory (ulimit -l) is too low: 512 KiB are needed\n");
    return 1;
  }
  const Json out = measure(options);
  if (options.json_file.empty()) return 0;
  std::ofstream file(options.json_file);
  file << out.dump(1) << std::endl;
  if (file.good()) return 0;
  std::fprintf(stderr, "cannot write %s: %s\n", options.json_file.c_str(), std::strerror(errno));
  return 1;
}
