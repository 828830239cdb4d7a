// Packing of descriptor tables; the same for all builds.
#include <algorithm>

#include "kernels.hpp"

namespace caloric {

i64 Table::points() const {
  i64 rows = 0;
  for (const Factor &factor : factors) rows += factor.height;
  return rows / (2 * order + 1);
}

Factor pack_factor(const float *matrix, i64 height, i64 width, const i64 *column_order) {
  Factor factor{{0}, {}, {}, {}, height, width};
  for (i64 c = 0; c < width; ++c) factor.columns.push_back((std::int32_t)column_order[c]);
  while (factor.columns.size() % COLUMNS) factor.columns.push_back((std::int32_t)width);
  const i64 groups = (i64)factor.columns.size() / COLUMNS;
  for (i64 block = 0; block < height; block += BLOCK)
    for (i64 group = 0; group < groups; ++group) {
      const std::int32_t *columns = factor.columns.data() + group * COLUMNS;
      for (i64 row = block; row < std::min(block + BLOCK, height); ++row) {
        float values[COLUMNS] = {};
        bool nonzero = false;
        for (int c = 0; c < COLUMNS; ++c)
          if (columns[c] < width) {
            values[c] = matrix[row * width + columns[c]];
            nonzero |= values[c] != 0;
          }
        if (!nonzero) continue;
        factor.rows.push_back((std::int32_t)row);
        factor.values.insert(factor.values.end(), values, values + COLUMNS);
      }
      factor.starts.push_back((i64)factor.rows.size());
    }
  return factor;
}

}  // namespace caloric
