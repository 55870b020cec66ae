// Start of the model's operations.
#include "tests/integration/rma/model_worker.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace rma_client {

// ---- choice of an operation ----

bool Worker::conflicts(const Operation& wanted) const {
  const auto meets = [&](const std::vector<Operation>& others) {
    return std::any_of(others.begin(), others.end(), [&](const Operation& other) {
      return other.slice == wanted.slice && (other.is_put || wanted.is_put) &&
             other.first < wanted.first + wanted.bytes && wanted.first < other.first + other.bytes;
    });
  };
  if (meets(implicit_puts_) || meets(implicit_gets_) || meets(in_region_operations_)) return true;
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return meets(group.operations); });
}

Worker::Operation Worker::choose(bool is_put, size_t most) {
  Operation operation;
  operation.is_put = is_put;
  for (int tries = 0;; ++tries) {
    operation.slice = slices_[below(random_, slices_.size())].get();
    const size_t room = operation.slice->holds.size();
    operation.bytes = random_size(random_, std::min(most, room));
    operation.first = below(random_, room - operation.bytes + 1);
    // The ends of a slice, where other slices begin.
    if (chance(8)) operation.first = chance(2) ? 0 : room - operation.bytes;
    if (!conflicts(operation)) break;
    // In a region implicit operations cannot be synced; an operation of 0 bytes has no conflicts.
    if (tries >= 8 && in_region_) operation.bytes = 0;
    if (tries >= 8 && in_region_) break;
    if (tries >= 8) complete_all();
  }
  const auto kind = static_cast<Local::Kind>(below(random_, Local::kKinds - (is_put ? 0 : 1)));
  operation.local = Local(kind, operation.bytes, random_, room_);
  return operation;
}

void Worker::note_put(const Operation& put) {
  if (put.bytes != 0) std::memcpy(put.slice->holds.data() + put.first, put.local.data(), put.bytes);
}
void Worker::note_fill(const Operation& put, int value) {
  if (put.bytes != 0) std::memset(put.slice->holds.data() + put.first, value, put.bytes);
}

void Worker::check_got(const Operation& get) const {
  get.local.check_guards();
  for (size_t i = 0; i < get.bytes; ++i) {
    const std::byte expected = get.slice->holds[get.first + i];
    if (get.local.data()[i] == expected) continue;
    wrong("a get of %zu bytes at %zu of a slice of rank %u (%s): byte %zu is %02x, not %02x",
          get.bytes, get.first, get.slice->rank, kAreaNames[get.slice->which], i,
          static_cast<unsigned>(get.local.data()[i]), static_cast<unsigned>(expected));
  }
}

// ---- blocking ----

void Worker::put_blocking() {
  Operation put = choose(true, SIZE_MAX);
  int answer = GASNET_OK;
  switch (below(random_, 4)) {
    case 0: gasnet_put(put.slice->rank, address(put), put.local.data(), put.bytes); break;
    case 1: gasnet_put_bulk(put.slice->rank, address(put), put.local.data(), put.bytes); break;
    default:
      answer = gex_RMA_PutBlocking(team, put.slice->rank, address(put), put.local.data(), put.bytes,
                                   chance(4) ? GEX_FLAG_IMMEDIATE : 0);
  }
  if (answer == GASNET_OK) note_put(put);
  put.local.scribble();
}

void Worker::get_blocking() {
  Operation get = choose(false, SIZE_MAX);
  int answer = GASNET_OK;
  if (chance(3)) {
    gasnet_get(get.local.data(), get.slice->rank, address(get), get.bytes);
  } else {
    answer = gex_RMA_GetBlocking(team, get.local.data(), get.slice->rank, address(get), get.bytes,
                                 chance(4) ? GEX_FLAG_IMMEDIATE : 0);
  }
  if (answer == GASNET_OK) check_got(get);
}

// ---- with events ----

void Worker::wait_for_leaf(gex_Event_t leaf) {
  if (chance(2)) {
    gex_Event_Wait(leaf);
    return;
  }
  while (gex_Event_Test(leaf) != GASNET_OK) gasnet_AMPoll();
}

Worker::Group Worker::start_put_with_event(Operation put) {
  Group group;
  gex_Event_t leaf = GEX_EVENT_INVALID;
  gex_Event_t* leaf_option = GEX_EVENT_NOW;
  const size_t way = below(random_, 5);
  const gex_Flags_t flags = chance(6) ? GEX_FLAG_IMMEDIATE : 0;
  if (way == 1) leaf_option = GEX_EVENT_DEFER;
  if (way == 2) leaf_option = &leaf;
  const gex_Rank_t rank = put.slice->rank;
  switch (way) {
    case 3: group.event = gasnet_put_nb(rank, address(put), put.local.data(), put.bytes); break;
    case 4:
      group.event = gasnet_put_nb_bulk(rank, address(put), put.local.data(), put.bytes);
      break;
    default:
      group.event =
          gex_RMA_PutNB(team, rank, address(put), put.local.data(), put.bytes, leaf_option, flags);
  }
  if (group.event == GEX_EVENT_NO_OP) {
    group.event = GEX_EVENT_INVALID;
    return group;
  }
  note_put(put);
  if (way == 2) wait_for_leaf(leaf);
  const bool deferred = way == 1 || way == 4;
  if (!deferred) put.local.scribble();
  if (!deferred && chance(2)) put.local.release();
  group.operations.push_back(std::move(put));
  return group;
}

Worker::Group Worker::start_get_with_event(Operation get) {
  Group group;
  if (chance(2)) {
    group.event = gasnet_get_nb_bulk(get.local.data(), get.slice->rank, address(get), get.bytes);
  } else {
    group.event = gex_RMA_GetNB(team, get.local.data(), get.slice->rank, address(get), get.bytes,
                                chance(6) ? GEX_FLAG_IMMEDIATE : 0);
  }
  if (group.event == GEX_EVENT_NO_OP) {
    group.event = GEX_EVENT_INVALID;
    return group;
  }
  group.operations.push_back(std::move(get));
  return group;
}

void Worker::hand_over(Group group) {
  // Complete already, if the path copies.
  if (group.event == GEX_EVENT_INVALID) {
    finish_group(group);
  } else {
    groups_.push_back(std::move(group));
  }
}
void Worker::put_with_event() { hand_over(start_put_with_event(choose(true, SIZE_MAX))); }
void Worker::get_with_event() { hand_over(start_get_with_event(choose(false, SIZE_MAX))); }

// Operations outlive the thread that started them: any thread may sync them.
void Worker::from_ended_thread() {
  Operation operation = choose(chance(2), size_t{1} << 20);
  Group group;
  std::thread([&] {
    group = operation.is_put ? start_put_with_event(std::move(operation))
                             : start_get_with_event(std::move(operation));
  }).join();
  hand_over(std::move(group));
}

// ---- implicit ----

void Worker::put_implicit() {
  Operation put = choose(true, SIZE_MAX);
  const gex_Rank_t rank = put.slice->rank;
  const size_t way = below(random_, in_region_ ? 5 : 6);
  gex_Event_t leaf = GEX_EVENT_INVALID;
  int answer = GASNET_OK;
  const auto start = [&](gex_Event_t* leaf_option) {
    answer = gex_RMA_PutNBI(team, rank, address(put), put.local.data(), put.bytes, leaf_option,
                            chance(6) ? GEX_FLAG_IMMEDIATE : 0);
  };
  switch (way) {
    case 0: gasnet_put_nbi(rank, address(put), put.local.data(), put.bytes); break;
    case 1: gasnet_put_nbi_bulk(rank, address(put), put.local.data(), put.bytes); break;
    case 2: start(GEX_EVENT_NOW); break;
    case 3: start(GEX_EVENT_DEFER); break;
    case 4: start(&leaf); break;
    default: start(GEX_EVENT_GROUP);
  }
  if (answer != GASNET_OK) return;
  note_put(put);
  if (way == 4) wait_for_leaf(leaf);
  if (way == 5) gex_NBI_Wait(GEX_EC_LC, 0);
  if (way != 1 && way != 3) put.local.scribble();
  (in_region_ ? in_region_operations_ : implicit_puts_).push_back(std::move(put));
}

void Worker::get_implicit() {
  Operation get = choose(false, SIZE_MAX);
  if (chance(2)) {
    gasnet_get_nbi(get.local.data(), get.slice->rank, address(get), get.bytes);
  } else if (gex_RMA_GetNBI(team, get.local.data(), get.slice->rank, address(get), get.bytes,
                            chance(6) ? GEX_FLAG_IMMEDIATE : 0) != GASNET_OK) {
    return;
  }
  (in_region_ ? in_region_operations_ : implicit_gets_).push_back(std::move(get));
}

void Worker::region() {
  gasnet_begin_nbi_accessregion();
  in_region_ = true;
  for (size_t left = below(random_, 12); left > 0; --left) {
    switch (below(random_, 6)) {
      case 0:
      case 1: put_implicit(); break;
      case 2:
      case 3: get_implicit(); break;
      case 4: values(); break;
      default: fill();
    }
  }
  in_region_ = false;
  Group group;
  group.operations = std::move(in_region_operations_);
  in_region_operations_.clear();
  group.event = chance(2) ? gasnet_end_nbi_accessregion() : gex_NBI_EndAccessRegion(0);
  hand_over(std::move(group));
}

void Worker::many() {
  const bool is_put = chance(2);
  std::vector<hydrant_rma_op_t> list;
  size_t total = 0;
  Group group;
  for (size_t left = below(random_, 40); left > 0; --left) {
    Operation operation = choose(is_put, chance(20) ? size_t{1} << 20 : 4096);
    // choose() may have completed operations in groups_, but it does not know this list.
    const auto meets = [&](const Operation& other) {
      return is_put && other.slice == operation.slice &&
             other.first < operation.first + operation.bytes &&
             operation.first < other.first + other.bytes;
    };
    if (std::any_of(group.operations.begin(), group.operations.end(), meets)) continue;
    list.push_back(
        {operation.slice->rank, address(operation), operation.local.data(), operation.bytes});
    total += operation.bytes;
    group.operations.push_back(std::move(operation));
  }
  if (chance(2)) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }
  gex_Event_t* event = chance(3) ? nullptr : &group.event;
  const int answer = is_put ? hydrant_put_many(team, list.data(), list.size(), total, event)
                            : hydrant_get_many(team, list.data(), list.size(), total, event);
  if (answer != GASNET_OK) wrong("many at once: %d, %s", answer, hydrant_last_error_text());
  if (is_put) {
    for (const Operation& put : group.operations) note_put(put);
  }
  hand_over(std::move(group));
}

// ---- values and fills ----

void Worker::values() {
  const bool is_put = chance(2) || in_region_;
  Operation operation = choose(is_put, 8);
  if (operation.bytes == 0) return;
  const gex_Rank_t rank = operation.slice->rank;
  std::byte* const at = address(operation);
  const size_t bytes = operation.bytes;
  gex_RMA_Value_t value = 0;
  if (!is_put) {
    switch (below(random_, 3)) {
      case 0: value = gasnet_get_val(rank, at, bytes); break;
      case 1: value = gasnet_wait_syncnb_valget(gasnet_get_nb_val(rank, at, bytes)); break;
      default: value = gex_RMA_GetBlockingVal(team, rank, at, bytes, 0);
    }
    if (bytes < 8 && value >> (8 * bytes) != 0) wrong("%zu bytes, and the value is longer", bytes);
    std::memcpy(operation.local.data(), &value, bytes);
    check_got(operation);
    return;
  }
  std::memcpy(&value, operation.local.data(), bytes);
  // Higher bytes of the value are ignored.
  const gex_RMA_Value_t whole = bytes < 8 ? value | random_() << (8 * bytes) : value;
  note_put(operation);
  if (in_region_ || chance(3)) {
    gasnet_put_nbi_val(rank, at, whole, bytes);
    (in_region_ ? in_region_operations_ : implicit_puts_).push_back(std::move(operation));
  } else if (chance(2)) {
    gasnet_put_val(rank, at, whole, bytes);
  } else {
    Group group;
    group.event = gasnet_put_nb_val(rank, at, whole, bytes);
    group.operations.push_back(std::move(operation));
    hand_over(std::move(group));
  }
}

void Worker::fill() {
  Operation put = choose(true, SIZE_MAX);
  const int value = static_cast<int>(below(random_, 1000)) - 300;  // only the low-order byte counts
  const gex_Rank_t rank = put.slice->rank;
  note_fill(put, value);
  if (in_region_ || chance(3)) {
    gasnet_memset_nbi(rank, address(put), value, put.bytes);
    (in_region_ ? in_region_operations_ : implicit_puts_).push_back(std::move(put));
  } else if (chance(2)) {
    gasnet_memset(rank, address(put), value, put.bytes);
  } else {
    Group group;
    group.event = gasnet_memset_nb(rank, address(put), value, put.bytes);
    group.operations.push_back(std::move(put));
    hand_over(std::move(group));
  }
}

// ---- sizes that the compiler knows, which are inlined ----

namespace {
template <size_t kBytes>
gex_Event_t copy_constant(bool is_put, size_t way, gex_Rank_t rank, std::byte* far,
                          std::byte* near) {
  if (is_put && way == 0) gex_RMA_PutBlocking(team, rank, far, near, kBytes, 0);
  if (is_put && way == 1) return gex_RMA_PutNB(team, rank, far, near, kBytes, GEX_EVENT_NOW, 0);
  if (is_put && way == 2) gasnet_put(rank, far, near, kBytes);
  if (!is_put && way == 0) gex_RMA_GetBlocking(team, near, rank, far, kBytes, 0);
  if (!is_put && way == 1) return gex_RMA_GetNB(team, near, rank, far, kBytes, 0);
  if (!is_put && way == 2) gasnet_get(near, rank, far, kBytes);
  return GEX_EVENT_INVALID;
}
using CopyConstant = gex_Event_t (*)(bool, size_t, gex_Rank_t, std::byte*, std::byte*);
struct ConstantSize {
  size_t bytes;
  CopyConstant copy;
};
constexpr ConstantSize kConstantSizes[] = {
    {1, copy_constant<1>},   {2, copy_constant<2>},   {3, copy_constant<3>},
    {4, copy_constant<4>},   {8, copy_constant<8>},   {12, copy_constant<12>},
    {16, copy_constant<16>}, {24, copy_constant<24>}, {32, copy_constant<32>},
    {63, copy_constant<63>}, {64, copy_constant<64>}, {65, copy_constant<65>}};
}  // namespace

void Worker::constant_sizes() {
  const ConstantSize& size_of = kConstantSizes[below(random_, std::size(kConstantSizes))];
  const bool is_put = chance(2);
  Operation operation = choose(is_put, 0);
  operation.bytes = size_of.bytes;
  operation.first = below(random_, operation.slice->holds.size() - size_of.bytes + 1);
  if (conflicts(operation)) complete_all();
  const Local::Kind kind = is_put && chance(4) ? Local::kConstant : Local::kHeapBlock;
  operation.local = Local(kind, operation.bytes, random_, room_);
  if (is_put) note_put(operation);
  Group group;
  group.event = size_of.copy(is_put, below(random_, 3), operation.slice->rank, address(operation),
                             operation.local.data());
  if (is_put) operation.local.scribble();
  group.operations.push_back(std::move(operation));
  hand_over(std::move(group));
}

}  // namespace rma_client
