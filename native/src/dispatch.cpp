#include "dispatch.hpp"

#include <stdexcept>
#include <utility>

#if defined(CALORIC_ARM) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#endif

namespace caloric {
namespace {

using Build = std::pair<std::string, const Kernels *>;

std::vector<Build> supported() {
  std::vector<Build> builds;
#ifdef CALORIC_X86
#ifdef _WIN32
  // Windows reports only AVX-512F; the AVX-512 build needs four more extensions.
  if (IsProcessorFeaturePresent(PF_AVX2_INSTRUCTIONS_AVAILABLE)) builds.emplace_back("avx2", &avx2::kernels);
#else
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4) builds.emplace_back("avx512", &avx512::kernels);
  if (v3) builds.emplace_back("avx2", &avx2::kernels);
#endif
#endif
#ifdef CALORIC_ARM
  builds.emplace_back("neon", &neon::kernels);  // part of every aarch64 processor
#endif
  builds.emplace_back("portable", &portable::kernels);
  return builds;
}

Build &selected() {
  static Build build = supported().front();
  return build;
}

}  // namespace

const Kernels &kernels() { return *selected().second; }

const std::string &build_name() { return selected().first; }

std::vector<std::string> available_builds() {
  std::vector<std::string> names;
  for (const Build &build : supported()) names.push_back(build.first);
  return names;
}

void select_build(const std::string &name) {
  for (const Build &build : supported())
    if (build.first == name) {
      selected() = build;
      return;
    }
  throw std::invalid_argument("build '" + name + "' is not available on this machine");
}

bool has_int8_products() {
#if defined(CALORIC_ARM) && defined(__linux__)
  return &kernels() == &neon::kernels && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
#elif defined(CALORIC_ARM) && defined(__APPLE__)
  return &kernels() == &neon::kernels;
#else
  return false;
#endif
}

}  // namespace caloric
