// Selection of a build at run time.
#pragma once
#include <string>
#include <vector>

#include "kernels.hpp"

namespace caloric {

// The build in use, by default the fastest.
const Kernels &kernels();
const Screening &screening();
const std::string &build_name();

// The builds that this processor can run, fastest first.
std::vector<std::string> available_builds();
void select_build(const std::string &name);

}  // namespace caloric
