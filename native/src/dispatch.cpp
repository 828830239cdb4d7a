#include "dispatch.hpp"

#include <stdexcept>

#if defined(CALORIC_ARM) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#ifdef CALORIC_X86
#include <cpuid.h>
#endif
#ifdef CALORIC_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#endif

namespace caloric {
namespace {

struct Build {
  std::string name;
  const Kernels *kernels;
  const Screening *screening;
};

#ifdef CALORIC_X86
// Whether a register of CPUID leaf 7 has a bit: ecx of subleaf 0, or eax of subleaf 1.
bool has_bit(unsigned subleaf, unsigned bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, subleaf, &eax, &ebx, &ecx, &edx)) return false;
  return (subleaf ? eax : ecx) >> bit & 1;
}

// Returns whether the processor multiplies matrices of bytes (AMX), and the operating system allows it.
bool can_use_amx() {
#ifdef CALORIC_AMX
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned TILES = 1u << 24, BYTES = 1u << 25;
  if ((edx & TILES) == 0 || (edx & BYTES) == 0) return false;
  // Linux reserves memory for the tiles of a process only if requested.
  constexpr long REQUEST_STATE = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
  return false;
#endif
}
#endif

std::vector<Build> supported() {
  std::vector<Build> builds;
#ifdef CALORIC_X86
#ifdef _WIN32
  // Windows reports only AVX-512F; the AVX-512 build needs four more extensions.
  const bool v3 = IsProcessorFeaturePresent(PF_AVX2_INSTRUCTIONS_AVAILABLE), v4 = false;
#else
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#endif
  // The compilers' names of these features differ.
  const bool avx512_vnni = has_bit(0, 11), avx_vnni = has_bit(1, 4);
#ifdef CALORIC_AMX
  if (v4 && avx512_vnni && can_use_amx()) builds.push_back({"amx", &avx512::kernels, &amx::screening});
#endif
  if (v4 && avx512_vnni) builds.push_back({"avx512-vnni", &avx512::kernels, &avx512_vnni::screening});
  if (v4) builds.push_back({"avx512", &avx512::kernels, &avx512::screening});
  if (v3 && avx_vnni) builds.push_back({"avx-vnni", &avx2::kernels, &avx_vnni::screening});
  if (v3) builds.push_back({"avx2", &avx2::kernels, &avx2::screening});
#endif
#ifdef CALORIC_ARM
  // NEON is part of every aarch64 processor.
#if defined(__linux__)
  const bool dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__APPLE__)
  const bool dotprod = true;  // in all of Apple's processors for computers
#else
  const bool dotprod = false;
#endif
  if (dotprod) builds.push_back({"neon-dotprod", &neon::kernels, &neon_dotprod::screening});
  builds.push_back({"neon", &neon::kernels, &neon::screening});
#endif
  builds.push_back({"portable", &portable::kernels, &portable::screening});
  return builds;
}

Build &selected() {
  static Build build = supported().front();
  return build;
}

}  // namespace

const Kernels &kernels() { return *selected().kernels; }

const Screening &screening() { return *selected().screening; }

const std::string &build_name() { return selected().name; }

std::vector<std::string> available_builds() {
  std::vector<std::string> names;
  for (const Build &build : supported()) names.push_back(build.name);
  return names;
}

void select_build(const std::string &name) {
  for (const Build &build : supported())
    if (build.name == name) {
      selected() = build;
      return;
    }
  throw std::invalid_argument("build '" + name + "' is not available on this machine");
}

}  // namespace caloric
