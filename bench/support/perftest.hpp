// One side of a perftest program (Debian: perftest), or of UCX's (Debian: ucx-utils), as a process of its
// own, and what it says.
#pragma once

#include <cstdint>
#include <string>

namespace hydrant::bench {

struct PerftestCall {
  std::string program;  // "ib_write_lat"
  uint32_t bytes = 8;
  uint32_t iterations = 1000;
  bool is_latency = true;
  // Buffers that it posts at first; of fewer than iterations it posts each again. 0: its default.
  uint32_t receives = 0;
  uint32_t under_way = 0;  // sends; 0: its default
};

// ucx_perftest over UCX's lower layer, uct, by its transport rc_verbs.
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

// Runs it to its end, 20 s at most: as the server, or as the client that connects to one on this machine,
// which it tries for 8 s. What it says of one operation, in ns: the typical latency, or the time that one
// takes at the average bandwidth. 0 for a server, below 0 if it cannot be run or says nothing of the kind.
double run_perftest(const PerftestCall& call, const PerftestPlace& place, bool is_server);
// The same; the address is UCX's own choice.
double run_uct(const UctCall& call, const PerftestPlace& place, bool is_server);

}  // namespace hydrant::bench
