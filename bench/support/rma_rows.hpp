// The rows of rma_bench: an operation, or a batch of them, in each form of the API. The including program
// defines the thread mode.
#pragma once

#include <gasnetex.h>
#include <hydrant/rma.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::bench {

// The other rank's memory: its segment, which is mapped here, or its heap, which is not.
enum class Memory : uint32_t { kSegment, kHeap };
inline const char* name_of(Memory memory) {
  return memory == Memory::kSegment ? "segment" : "heap";
}

enum class Form {
  kConstant,  // blocking, a size that the compiler knows
  kBlocking,  // blocking, any size
  kImplicit,  // NBI, and a wait for all of the batch
  kEvents,    // NB, and a wait for the array of events
  kMany,      // hydrant_put_many, hydrant_get_many
};
inline const char* name_of(Form form) {
  constexpr std::array kNames = {"constant", "blocking", "nbi", "nb", "many"};
  return kNames[static_cast<size_t>(form)];
}

struct RmaRow {
  Memory memory;
  bool is_put;
  Form form;
  size_t bytes;
  size_t batch;  // operations completed by one wait

  std::string name() const {
    std::string text = std::string(name_of(memory)) + (is_put ? "_put_" : "_get_") + name_of(form);
    if (form > Form::kBlocking) text += std::to_string(batch);
    return text + "_" + std::to_string(bytes);
  }
};

// Powers of two up to 512; then odd sizes, so that results do not depend on alignment.
inline std::vector<size_t> rma_sizes(size_t most) {
  std::vector<size_t> sizes;
  for (size_t bytes = 1; bytes <= 512; bytes *= 2) sizes.push_back(bytes);
  for (const size_t bytes :
       {size_t{1031}, size_t{4099}, size_t{16411}, size_t{65521}, size_t{262147}, size_t{1048573},
        size_t{4194301}, size_t{16777213}, size_t{67108859}}) {
    if (bytes <= most) sizes.push_back(bytes);
  }
  return sizes;
}

inline std::vector<RmaRow> rma_rows(size_t most) {
  std::vector<RmaRow> rows;
  for (const Memory memory : {Memory::kSegment, Memory::kHeap}) {
    for (const bool is_put : {true, false}) {
      for (const size_t bytes : rma_sizes(most)) {
        if (bytes <= HYDRANT_RMA_INLINE && memory == Memory::kSegment)
          rows.push_back({memory, is_put, Form::kConstant, bytes, 1});
        rows.push_back({memory, is_put, Form::kBlocking, bytes, 1});
      }
      for (const size_t bytes : {size_t{8}, size_t{512}, size_t{4099}, size_t{65521}}) {
        for (const size_t batch : {size_t{1}, size_t{16}, size_t{256}}) {
          if (bytes * batch > most) continue;
          for (const Form form : {Form::kImplicit, Form::kEvents, Form::kMany})
            rows.push_back({memory, is_put, form, bytes, batch});
        }
      }
    }
  }
  return rows;
}

// Source and target of an operation. Those of a batch are contiguous.
struct RmaPlaces {
  gex_TM_t team;
  gex_Rank_t peer;
  std::byte* local;
  std::byte* remote;
};

namespace detail {

// By value: a reference would be reloaded after each operation, which may write any memory.
template <size_t kBytes>
void run_constant(const RmaPlaces at, const bool is_put, const uint64_t rounds) {
  if (is_put) {
    for (uint64_t i = 0; i < rounds; ++i)
      gex_RMA_PutBlocking(at.team, at.peer, at.remote, at.local, kBytes, 0);
  } else {
    for (uint64_t i = 0; i < rounds; ++i)
      gex_RMA_GetBlocking(at.team, at.local, at.peer, at.remote, kBytes, 0);
  }
}

inline void run_constant(const RmaPlaces& at, const RmaRow& row, uint64_t rounds) {
  switch (row.bytes) {
    case 1: return run_constant<1>(at, row.is_put, rounds);
    case 2: return run_constant<2>(at, row.is_put, rounds);
    case 4: return run_constant<4>(at, row.is_put, rounds);
    case 8: return run_constant<8>(at, row.is_put, rounds);
    case 16: return run_constant<16>(at, row.is_put, rounds);
    case 32: return run_constant<32>(at, row.is_put, rounds);
    default: return run_constant<64>(at, row.is_put, rounds);
  }
}

inline void run_blocking(const RmaPlaces at, const RmaRow row, const uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) {
    if (row.is_put) {
      gex_RMA_PutBlocking(at.team, at.peer, at.remote, at.local, row.bytes, 0);
    } else {
      gex_RMA_GetBlocking(at.team, at.local, at.peer, at.remote, row.bytes, 0);
    }
  }
}

inline void run_implicit(const RmaPlaces at, const RmaRow row, const uint64_t batches) {
  for (uint64_t i = 0; i < batches; ++i) {
    for (size_t k = 0; k < row.batch; ++k) {
      std::byte* local = at.local + k * row.bytes;
      std::byte* remote = at.remote + k * row.bytes;
      if (row.is_put) {
        gex_RMA_PutNBI(at.team, at.peer, remote, local, row.bytes, GEX_EVENT_DEFER, 0);
      } else {
        gex_RMA_GetNBI(at.team, local, at.peer, remote, row.bytes, 0);
      }
    }
    gex_NBI_Wait(row.is_put ? GEX_EC_PUT : GEX_EC_GET, 0);
  }
}

inline void run_events(const RmaPlaces at, const RmaRow row, const uint64_t batches) {
  std::vector<gex_Event_t> events(row.batch);
  for (uint64_t i = 0; i < batches; ++i) {
    for (size_t k = 0; k < row.batch; ++k) {
      std::byte* local = at.local + k * row.bytes;
      std::byte* remote = at.remote + k * row.bytes;
      events[k] =
          row.is_put ? gex_RMA_PutNB(at.team, at.peer, remote, local, row.bytes, GEX_EVENT_DEFER, 0)
                     : gex_RMA_GetNB(at.team, local, at.peer, remote, row.bytes, 0);
    }
    gex_Event_WaitAll(events.data(), events.size(), 0);
  }
}

inline void run_many(const RmaPlaces& at, const RmaRow& row, uint64_t batches) {
  std::vector<hydrant_rma_op_t> ops;
  for (size_t k = 0; k < row.batch; ++k)
    ops.push_back({at.peer, at.remote + k * row.bytes, at.local + k * row.bytes, row.bytes});
  const size_t total = row.batch * row.bytes;
  for (uint64_t i = 0; i < batches; ++i) {
    row.is_put ? hydrant_put_many(at.team, ops.data(), ops.size(), total, nullptr)
               : hydrant_get_many(at.team, ops.data(), ops.size(), total, nullptr);
  }
}

}  // namespace detail

// Runs `batches` batches of the row.
inline void run_row(const RmaPlaces& at, const RmaRow& row, uint64_t batches) {
  switch (row.form) {
    case Form::kConstant: return detail::run_constant(at, row, batches);
    case Form::kBlocking: return detail::run_blocking(at, row, batches);
    case Form::kImplicit: return detail::run_implicit(at, row, batches);
    case Form::kEvents: return detail::run_events(at, row, batches);
    case Form::kMany: return detail::run_many(at, row, batches);
  }
}

// The number of batches that take about `sample_ns`, from a measured time per operation.
inline uint64_t batches_for(const RmaRow& row, double ns_per_operation, double sample_ns) {
  const double batch_ns = ns_per_operation * static_cast<double>(row.batch) + 1;
  return static_cast<uint64_t>(std::clamp(sample_ns / batch_ns, 1.0, 1e6));
}

// Checks one batch of the row: data goes there and back, once by the row and once by plain puts or gets.
inline bool row_moves_data(const RmaPlaces& at, const RmaRow& row) {
  const size_t bytes = row.bytes * row.batch;
  const auto word = [&](size_t i) { return static_cast<std::byte>(i * 7 + i / 251 + row.bytes); };
  for (size_t i = 0; i < bytes; ++i) at.local[i] = word(i);
  if (row.is_put) {
    run_row(at, row, 1);
  } else {
    gex_RMA_PutBlocking(at.team, at.peer, at.remote, at.local, bytes, 0);
  }
  std::fill_n(at.local, bytes, std::byte{0});
  if (row.is_put) {
    gex_RMA_GetBlocking(at.team, at.local, at.peer, at.remote, bytes, 0);
  } else {
    run_row(at, row, 1);
  }
  for (size_t i = 0; i < bytes; ++i) {
    if (at.local[i] != word(i)) return false;
  }
  return true;
}

// The paths of this process's operations since the last call, such as "cma+am_medium". Copies of mapped
// memory leave no count.
class PathWatch {
 public:
  std::string take() {
    std::string names;
    for (int path = 0; path < HYDRANT_PATH_COUNT; ++path) {
      hydrant_path_counts_t counts = {};
      hydrant_query_path(GEX_RANK_INVALID, static_cast<hydrant_path_t>(path), &counts);
      const uint64_t ops = counts.put_ops + counts.get_ops;
      if (ops != before_[static_cast<size_t>(path)])
        names += (names.empty() ? "" : "+") +
                 std::string(hydrant_path_name(static_cast<hydrant_path_t>(path)));
      before_[static_cast<size_t>(path)] = ops;
    }
    return names.empty() ? hydrant_path_name(HYDRANT_PATH_MAPPED) : names;
  }

 private:
  std::array<uint64_t, HYDRANT_PATH_COUNT> before_ = {};
};

}  // namespace hydrant::bench
