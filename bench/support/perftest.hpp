// Runs one side of a perftest program (Debian: perftest) or of ucx_perftest (Debian: ucx-utils) as a child
// process, and returns its result.
#pragma once

#include <cstdint>
#include <string>

namespace hydrant::bench {

struct PerftestCall {
  std::string program;  // "ib_write_lat"
  uint32_t bytes = 8;
  uint32_t iterations = 1000;
  bool is_latency = true;
  // Receive buffers that it posts initially; fewer than iterations are reposted. 0: the program's default.
  uint32_t receives = 0;
  uint32_t under_way = 0;  // outstanding sends; 0: the program's default
};

// ucx_perftest over UCX's lower layer, uct, with its transport rc_verbs.
struct UctCall {
  std::string test;  // "put_lat"
  uint32_t bytes = 8;
  uint32_t iterations = 1000;
  std::string layout = "short";
  uint32_t under_way = 1;
  bool is_latency = true;
};

struct PerftestPlace {
  std::string folder;  // of the programs; "" for PATH
  std::string device;
  uint32_t port = 1;
  uint32_t gid_index = 0;
  uint32_t tcp_port = 18515;
};

// Runs it to its end, for at most 20 s: as the server, or as the client, which tries for 8 s to connect to a
// server on this machine. Returns the ns per operation: the typical latency, or the time at the average
// bandwidth. 0 for a server; negative if it cannot be run or prints no result.
double run_perftest(const PerftestCall& call, const PerftestPlace& place, bool is_server);
// The same for ucx_perftest; UCX chooses the address.
double run_uct(const UctCall& call, const PerftestPlace& place, bool is_server);

}  // namespace hydrant::bench
