#include "cuda/chunks/summary_views.hpp"

#include <attune/ops/summarising_walk.hpp>

namespace attune::cuda {

SummaryViews summary_views(const ops::SummaryOutputs& to) {
  const SlotsView slots = slots_view(to.slots, to.final_state.size(0));
  SummaryViews views{.final_state = state_view(std::optional(to.final_state)),
                     .key_sums = key_sums_view<StateView>(to.gk_sum),
                     .initial = state_view(to.initial_state)};
  views.final_state.slots = slots;
  views.key_sums.slots = slots;
  if (to.initial_state) {
    views.initial.slots = slots_view(to.initial_slots, to.initial_state->size(0));
  }
  return views;
}

}  // namespace attune::cuda
