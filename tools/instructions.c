/* A plugin of QEMU's user mode: the number of instructions that a program executes, printed at its end.
   The few declarations stand here because Debian ships the emulator without its plugin header. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t Id;
struct qemu_plugin_tb;
extern void qemu_plugin_register_vcpu_tb_trans_cb(Id, void (*)(Id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(Id, void (*)(Id, void *), void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

EXPORT int qemu_plugin_version = 1;
static uint64_t count;

static void translated(Id id, struct qemu_plugin_tb *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, 0 /* add */, &count, qemu_plugin_tb_n_insns(block));
}

static void ended(Id id, void *nothing) {
  (void)id, (void)nothing;
  fprintf(stderr, "instructions: %llu\n", (unsigned long long)count);
}

EXPORT int qemu_plugin_install(Id id, const void *info, int count_of_words, char **words) {
  (void)info, (void)count_of_words, (void)words;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
