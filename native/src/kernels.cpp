// The table of one build; compiled once per instruction set.
#include "kernels.hpp"

#include "vectors.hpp"

namespace caloric::CALORIC_BUILD {

const Kernels kernels = {smooth_octave, find_candidates, refine_extrema, describe, pack_panels,
                         multiply,      find_nearest,    refine_matches, write_squares,
                         find_noise,    sum_fit,         write_errors,   LANES};

}  // namespace caloric::CALORIC_BUILD
