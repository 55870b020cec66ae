// Sets of ranks in settings, such as "0,2-4,6"; "*", "" and null mean all ranks.
#pragma once

namespace hydrant {

// An invalid list contains no rank.
bool rank_list_contains(const char* list, int rank) noexcept;
// Whether each piece is a rank or an ascending range.
bool is_rank_list(const char* list) noexcept;

}  // namespace hydrant
