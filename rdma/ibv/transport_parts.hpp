// The parts of the verbs transport, in the order in which they are built on each other, and the wiring
// between them. No code but construction.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/connection/address_handles.hpp"
#include "rdma/ibv/connection/connection_thread.hpp"
#include "rdma/ibv/connection/device_events.hpp"
#include "rdma/ibv/connection/handshakes.hpp"
#include "rdma/ibv/connection/node_adapters.hpp"
#include "rdma/ibv/connection/own_endpoint.hpp"
#include "rdma/ibv/connection/peer_factory.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/queue/cell_pool.hpp"
#include "rdma/ibv/queue/completion_queue.hpp"
#include "rdma/ibv/queue/counters.hpp"
#include "rdma/ibv/queue/deferred_work.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/queue/sleeper.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transfer/completions.hpp"
#include "rdma/ibv/transfer/disconnector.hpp"
#include "rdma/ibv/transfer/liveness.hpp"
#include "rdma/ibv/transfer/messages.hpp"
#include "rdma/ibv/transfer/operations.hpp"
#include "rdma/ibv/transfer/peer_table.hpp"
#include "rdma/ibv/transfer/poster.hpp"
#include "rdma/ibv/transfer/put_fences.hpp"
#include "rdma/ibv/transfer/receiving.hpp"
#include "rdma/ibv/transfer/striping.hpp"
#include "rdma/ibv/wire/ibv_group_address.hpp"

namespace hydrant::ibv {

struct TransportParts {
  TransportParts(Bootstrap& its_bootstrap, const Options& its_options) noexcept
      : bootstrap(its_bootstrap), options(its_options) {}

  // ---- settings: constant after open() ----
  Bootstrap& bootstrap;
  Options options;
  Ports ports;  // all, open
  Port& port = ports.all[0];

  // ---- parts: each uses only those above it ----
  Counters counters;
  Sleeper sleeper;
  Rails rails;
  LaneCells cells;
  OperationPool operation_pool;
  PeerTable peers;
  DeferredWork deferred;
  Poster poster{deferred, cells};
  Messages messages{options, peers, poster, deferred, cells, counters};
  Striping striping{operation_pool, rails, counters};
  PutFences fences{options, port, peers, poster, deferred};
  Operations operations{options,  ports,  rails,  peers,   operation_pool,
                        striping, fences, poster, deferred};
  Disconnector disconnector{peers, messages, operations, striping, poster, deferred, counters};
  Receiving receiving{peers, deferred, disconnector, counters};
  Completions completions{rails, receiving, operation_pool, striping, poster, disconnector};
  Liveness liveness{peers, poster, deferred, counters};
  OwnEndpoint own{options, port, rails};
  NodeAdapters node_adapters;
  AddressHandles addresses{options.handshakes, port};
  PeerFactory factory{options, ports, own, peers, completions.queue(), rails, receiving, addresses};
  Handshakes handshakes{{.bootstrap = bootstrap,
                         .options = options,
                         .ports = ports,
                         .own = own,
                         .peers = peers,
                         .addresses = addresses,
                         .factory = factory,
                         .rails = rails,
                         .node_adapters = node_adapters,
                         .fences = fences,
                         .receiving = receiving,
                         .disconnector = disconnector,
                         .counters = counters}};
  ConnectionThread connection_thread{handshakes, sleeper};
  DeviceEvents events{ports, disconnector, handshakes};
};

}  // namespace hydrant::ibv
