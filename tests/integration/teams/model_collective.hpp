// Collectives under way on a model team, with results that every rank can compute. The data are in the
// segment, in other memory, or in both kinds on different ranks.
#pragma once

#include <hydrant/coll.h>

#include "tests/integration/teams/model_team.hpp"

#include <cstring>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <unistd.h>

// Composition of x -> multiplier * x + addend, which is not commutative.
struct Affine {
  uint32_t multiplier;
  uint32_t addend;
};
inline Affine compose(Affine left, Affine right) {
  constexpr uint64_t kPrime = 65521;
  return {
      static_cast<uint32_t>(uint64_t{left.multiplier} * right.multiplier % kPrime),
      static_cast<uint32_t>((uint64_t{left.addend} * right.multiplier + right.addend) % kPrime)};
}
inline void compose_all(const void* arg1, void* arg2_and_out, size_t count, const void* cdata) {
  check(cdata == &world, "the client data of an operation");
  for (size_t i = 0; i < count; ++i) {
    auto& right = static_cast<Affine*>(arg2_and_out)[i];
    right = compose(static_cast<const Affine*>(arg1)[i], right);
  }
}
inline Affine affine_of(uint32_t seed, gex_Rank_t jobrank, size_t i) {
  std::minstd_rand random(seed * 31 + jobrank * 1009 + static_cast<uint32_t>(i) + 1);
  return {static_cast<uint32_t>(random() % 65520 + 1), static_cast<uint32_t>(random() % 65521)};
}

// Memory of the segment, and of the heap once that is used up.
inline std::pmr::memory_resource* segment_memory() {
  static std::pmr::monotonic_buffer_resource all(
      static_cast<char*>(gex_Segment_QueryAddr(segment)) + kDataOffset, kSegment - kDataOffset);
  static std::pmr::synchronized_pool_resource pool({0, size_t{1} << 19}, &all);
  return &pool;
}

// Bytes in the segment or on the heap.
class Buffer {
 public:
  void place(bool in_segment) {
    bytes_.emplace(in_segment ? segment_memory() : std::pmr::new_delete_resource());
  }
  void resize(size_t size) { bytes_->resize(size); }
  void assign(size_t size, unsigned char value) { bytes_->assign(size, value); }
  unsigned char* data() { return bytes_->data(); }
  size_t size() const { return bytes_->size(); }
  unsigned char& operator[](size_t i) { return (*bytes_)[i]; }

 private:
  std::optional<std::pmr::vector<unsigned char>> bytes_;
};

// A collective under way. finish() waits, and checks the result.
struct Collective {
  gex_Event_t event = GEX_EVENT_INVALID;
  Buffer source;
  Buffer dest;
  std::function<void()> verify;

  void start(const ModelTeam& model, uint32_t seed) {
    std::mt19937 common(seed);  // the same on all members
    const auto size = static_cast<gex_Rank_t>(model.jobranks.size());
    const auto root = static_cast<gex_Rank_t>(common() % size);
    const bool is_root = model.jobranks[root] == me;
    const size_t count = common() % 4 == 0 ? 1 + common() % 6000 : 1 + common() % 20;
    const bool in_place = common() % 3 == 0;
    // All members in the segment, all on the heap, or some of them in each.
    std::mt19937 own(seed + me);
    const uint32_t places = common() % 4;
    source.place(places < 2 || (places == 2 && own() % 4 != 0));
    dest.place(places < 2 || (places == 2 && own() % 4 != 0));
    switch (common() % 7) {
      case 0: return start_broadcast(model, root, is_root, count, in_place, seed);
      case 1: return start_composition(model, root, is_root, count, in_place, seed, true);
      case 2: return start_composition(model, root, is_root, count, in_place, seed, false);
      case 3: return start_sum(model, count, seed);
      case 4: return start_parts(model, root, is_root, count, common);
      case 5: return start_parts(model, root, is_root, count % 30 + 1, common);
      default: event = gex_Coll_BarrierNB(model.team, 0); verify = [] {};
    }
  }
  void finish() {
    gex_Event_Wait(event);
    verify();
  }

 private:
  // Byte i of the part that rank `from` of the job has for rank `to`.
  static unsigned char part_byte(gex_Rank_t from, gex_Rank_t to, size_t i) {
    return static_cast<unsigned char>(from * 37 + to * 11 + i * 5 + 3);
  }
  // Gathers, scatters and exchanges, by GASNet-1's calls or ours.
  void start_parts(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t bytes,
                   std::mt19937& common) {
    constexpr int kIn[] = {GASNET_COLL_IN_NOSYNC, GASNET_COLL_IN_MYSYNC, GASNET_COLL_IN_ALLSYNC};
    constexpr int kOut[] = {GASNET_COLL_OUT_NOSYNC, GASNET_COLL_OUT_MYSYNC,
                            GASNET_COLL_OUT_ALLSYNC};
    const std::vector<gex_Rank_t> jobranks = model.jobranks;
    const size_t size = jobranks.size();
    const gex_TM_t team = model.team;
    const int flags = kIn[common() % 3] | kOut[common() % 3] | GASNET_COLL_LOCAL;
    const auto what = static_cast<uint32_t>(common() % 6);
    const bool has_parts =
        what == 3 || what == 4 || what == 5;  // the source has a part for each member
    source.resize(bytes * size);
    dest.assign(bytes * size, 0xee);
    for (size_t to = 0; to < (has_parts ? size : 1); ++to) {
      for (size_t i = 0; i < bytes; ++i)
        source[to * bytes + i] = part_byte(me, has_parts ? jobranks[to] : 0, i);
    }
    switch (what) {
      case 0: event = hydrant_gather_all_nb(team, dest.data(), source.data(), bytes); break;
      case 1:
        event = gasnet_coll_gather_all_nb(team, dest.data(), source.data(), bytes, flags);
        break;
      case 2:
        event = gasnet_coll_gather_nb(team, root, dest.data(), source.data(), bytes, flags);
        break;
      case 3:
        event = gasnet_coll_scatter_nb(team, dest.data(), root, source.data(), bytes, flags);
        break;
      case 4:
        event = gasnet_coll_exchange_nb(team, dest.data(), source.data(), bytes, flags);
        break;
      default: event = hydrant_exchange_nb(team, dest.data(), source.data(), bytes);
    }
    if (what == 2 && !is_root) {
      verify = [] {};
      return;
    }
    verify = [this, jobranks, what, root, bytes, has_parts] {
      const size_t parts = what == 3 ? 1 : jobranks.size();
      for (size_t part = 0; part < parts; ++part) {
        const gex_Rank_t from = jobranks[what == 3 ? root : part];
        for (size_t i = 0; i < bytes; ++i)
          check(dest[part * bytes + i] == part_byte(from, has_parts ? me : 0, i),
                "parts of members");
      }
    };
  }
  void start_broadcast(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t count,
                       bool in_place, uint32_t seed) {
    dest.assign(count, 0xee);
    source.resize(count);
    auto& data = in_place ? dest : source;
    for (size_t i = 0; is_root && i < count; ++i)
      data[i] = static_cast<unsigned char>(i * 13 + seed);
    event = gex_Coll_BroadcastNB(model.team, root, dest.data(), is_root ? data.data() : nullptr,
                                 count, 0);
    verify = [this, seed] {
      for (size_t i = 0; i < dest.size(); ++i)
        check(dest[i] == static_cast<unsigned char>(i * 13 + seed), "a broadcast");
    };
  }
  void start_composition(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t count,
                         bool in_place, uint32_t seed, bool to_all) {
    source.resize(count * sizeof(Affine));
    dest.assign(count * sizeof(Affine), 0);
    auto& data = in_place && (to_all || is_root) ? dest : source;
    for (size_t i = 0; i < count; ++i) {
      const Affine mine = affine_of(seed, me, i);
      std::memcpy(data.data() + i * sizeof mine, &mine, sizeof mine);
    }
    event = to_all ? gex_Coll_ReduceToAllNB(model.team, dest.data(), data.data(), GEX_DT_USER,
                                            sizeof(Affine), count, GEX_OP_USER_NC, compose_all,
                                            &world, 0)
                   : gex_Coll_ReduceToOneNB(model.team, root, is_root ? dest.data() : nullptr,
                                            data.data(), GEX_DT_USER, sizeof(Affine), count,
                                            GEX_OP_USER_NC, compose_all, &world, 0);
    if (!to_all && !is_root) {
      verify = [] {};
      return;
    }
    const std::vector<gex_Rank_t> jobranks = model.jobranks;
    verify = [this, jobranks, seed, count] {
      for (size_t i = 0; i < count; ++i) {
        Affine expected{1, 0};
        for (const gex_Rank_t jobrank : jobranks)
          expected = compose(expected, affine_of(seed, jobrank, i));
        check(std::memcmp(dest.data() + i * sizeof expected, &expected, sizeof expected) == 0,
              "a reduction in the order of ranks");
      }
    };
  }
  void start_sum(const ModelTeam& model, size_t count, uint32_t seed) {
    std::vector<uint64_t> mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = uint64_t{me} * 1000 + i + seed;
    source.resize(count * 8);
    dest.resize(count * 8);
    std::memcpy(source.data(), mine.data(), source.size());
    event = gex_Coll_ReduceToAllNB(model.team, dest.data(), source.data(), GEX_DT_U64, 8, count,
                                   GEX_OP_ADD, nullptr, nullptr, 0);
    uint64_t ranks = 0;
    for (const gex_Rank_t jobrank : model.jobranks) ranks += jobrank;
    const uint64_t size = model.jobranks.size();
    verify = [this, ranks, size, seed, count] {
      for (size_t i = 0; i < count; ++i) {
        uint64_t sum = 0;
        std::memcpy(&sum, dest.data() + i * 8, 8);
        check(sum == ranks * 1000 + size * (i + seed), "a sum");
      }
    };
  }
};

// Several collectives at once on one team, finished in another order.
inline void run_collectives(const ModelTeam& model, uint32_t seed) {
  if (!model.has_me()) return;
  std::mt19937 common(seed);
  std::mt19937 own(seed + me);
  std::vector<Collective> all(1 + common() % 6);
  for (size_t i = 0; i < all.size(); ++i) {
    if (own() % 16 == 0) usleep(static_cast<useconds_t>(own() % 1000));
    all[i].start(model, static_cast<uint32_t>(common()));
  }
  const bool backwards = own() % 2 == 0;
  for (size_t i = 0; i < all.size(); ++i) all[backwards ? all.size() - 1 - i : i].finish();
}
