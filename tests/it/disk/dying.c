/* Loaded before the C library: the process kills itself behind one of its system calls that change a file or send to a
 * socket.
 *
 * The kernel hands each of these calls to a function here (seccomp), also those that do not go through the C library. Memory
 * that is mapped (SQLite's -shm file) is changed without a call; the first process
 * that opens a database makes that file again.
 *
 * DYING_AFTER: behind which of them, from 1; 0 for none. DYING_FROM: a file whose existence begins to count; without it all
 * count. DYING_LOG: a file that gets one letter for each call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* A system call that is let through. */
long dying_call(long number, long a, long b, long c, long d, long e, long f);
/* Where it returns to. */
extern const char dying_called[];

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define ARGUMENTS(at) (at)[REG_RDI], (at)[REG_RSI], (at)[REG_RDX], (at)[REG_R10], (at)[REG_R8], (at)[REG_R9]
#define REGISTERS(context) ((context)->uc_mcontext.gregs)
#define RESULT(at) (at)[REG_RAX]
__asm__(".text\n.globl dying_call\n.hidden dying_call\n.globl dying_called\n.hidden dying_called\n"
        "dying_call:\n  mov %rdi, %rax\n  mov %rsi, %rdi\n  mov %rdx, %rsi\n  mov %rcx, %rdx\n  mov %r8, %r10\n"
        "  mov %r9, %r8\n  mov 8(%rsp), %r9\n  syscall\ndying_called:\n  ret\n");
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define ARGUMENTS(at) (at)[0], (at)[1], (at)[2], (at)[3], (at)[4], (at)[5]
#define REGISTERS(context) ((context)->uc_mcontext.regs)
#define RESULT(at) (at)[0]
__asm__(".text\n.globl dying_call\n.hidden dying_call\n.globl dying_called\n.hidden dying_called\n"
        "dying_call:\n  mov x8, x0\n  mov x0, x1\n  mov x1, x2\n  mov x2, x3\n  mov x3, x4\n  mov x4, x5\n  mov x5, x6\n"
        "  svc #0\ndying_called:\n  ret\n");
#else
#error "the registers of a system call are known for x86-64 and AArch64"
#endif

static int out = -1;
static long after, calls;
static const char *from;

static void fail(const char *what) {
  dprintf(2, "dying: %s\n", what);
  abort();
}

static void changed(char letter) {
  if (from && access(from, F_OK) != 0) return;
  if (out >= 0 && dying_call(SYS_write, out, (long)&letter, 1, 0, 0, 0) != 1) fail("its log cannot be written");
  if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == after) kill(getpid(), SIGKILL);
}

static mode_t kind(long fd) {
  struct stat given;
  return fstat((int)fd, &given) == 0 ? given.st_mode & S_IFMT : 0;
}

/* Of a call that opens: `o` if it makes a file, `t` if it may empty one. */
static char opens(long at, const char *path, long flags) {
  if ((flags & O_TMPFILE) == O_TMPFILE) return 'o';
  if ((flags & O_CREAT) && faccessat((int)at, path, F_OK, 0) != 0) return 'o';
  return flags & O_TRUNC ? 't' : 0;
}

/* What a call is about to do: a letter, or 0 for nothing that counts. */
static char about(long number, long a, long b, long c) {
  mode_t of;
  switch (number) {
#ifdef SYS_open
    case SYS_open: return opens(AT_FDCWD, (const char *)a, b);
    case SYS_creat: return opens(AT_FDCWD, (const char *)a, O_CREAT | O_TRUNC);
    case SYS_rename: return 'r';
    case SYS_mkdir: return 'd';
    case SYS_rmdir: case SYS_unlink: return 'u';
    case SYS_link: case SYS_symlink: return 'l';
    case SYS_chmod: case SYS_chown: case SYS_lchown: case SYS_utimes: return 'm';
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2: return 'r';
    case SYS_openat: return opens(a, (const char *)b, c);
    case SYS_openat2: return opens(a, (const char *)b, *(const long *)c);
    case SYS_write: case SYS_writev: case SYS_pwrite64: case SYS_pwritev: case SYS_pwritev2:
      of = kind(a);
      return of == S_IFREG ? 'w' : of == S_IFSOCK ? 'n' : 0;
    case SYS_sendfile: return kind(a) == S_IFREG ? 'w' : 0;
    case SYS_copy_file_range: case SYS_splice: return kind(c) == S_IFREG ? 'w' : 0;
    case SYS_sendto: case SYS_sendmsg: case SYS_sendmmsg: return 'n';
    case SYS_truncate: case SYS_ftruncate: case SYS_fallocate: return 't';
    case SYS_fsync: case SYS_fdatasync: case SYS_sync_file_range: case SYS_syncfs: case SYS_msync: return 's';
    case SYS_mkdirat: return 'd';
    case SYS_unlinkat: return 'u';
    case SYS_linkat: case SYS_symlinkat: return 'l';
    case SYS_io_uring_enter: fail("what io_uring changes cannot be seen");
    default: return 'm';
  }
}

static const int watched[] = {
#ifdef SYS_open
    SYS_open, SYS_creat, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_unlink, SYS_link, SYS_symlink, SYS_chmod, SYS_chown,
    SYS_lchown, SYS_utimes,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_renameat2, SYS_openat, SYS_openat2, SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_sendfile,
    SYS_copy_file_range, SYS_splice, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_truncate, SYS_ftruncate, SYS_fallocate,
    SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_syncfs, SYS_msync, SYS_mkdirat, SYS_unlinkat, SYS_linkat,
    SYS_symlinkat, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_io_uring_enter,
};
#define WATCHED (sizeof watched / sizeof *watched)

static long pass(long number, long a, long b, long c, long d, long e, long f) {
  char letter = about(number, a, b, c);
  long result = dying_call(number, a, b, c, d, e, f);
  if (result >= 0 && letter) changed(letter);
  return result;
}

static void called(int signal, siginfo_t *info, void *context) {
  (void)signal;
  int before = errno;
  RESULT(REGISTERS((ucontext_t *)context)) = pass(info->si_syscall, ARGUMENTS(REGISTERS((ucontext_t *)context)));
  errno = before;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
/* So many statements are left out where the two are not equal. */
#define EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, skip)

/* What is called from here passes; of the rest, what is watched is handed over. */
static void watch(void) {
  uint64_t here = (uint64_t)(uintptr_t)dying_called;
  const struct sock_filter begin[] = {
      LOAD(arch),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
      RETURN(SECCOMP_RET_ALLOW),
      LOAD(instruction_pointer),
      EQUAL(here, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
      EQUAL(here >> 32, 1),
      RETURN(SECCOMP_RET_ALLOW),
      LOAD(nr),
  };
#define BEGIN (sizeof begin / sizeof *begin)
  struct sock_filter filter[BEGIN + 2 * WATCHED + 1];
  size_t end = BEGIN;
  memcpy(filter, begin, sizeof begin);
  for (size_t i = 0; i < WATCHED; i++) {
    filter[end++] = (struct sock_filter)EQUAL(watched[i], 1);
    filter[end++] = (struct sock_filter)RETURN(SECCOMP_RET_TRAP);
  }
  filter[end++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
  struct sock_fprog program = {(unsigned short)end, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    fail("the kernel hands over no system calls");
}

__attribute__((constructor)) static void begin(void) {
  const char *log = getenv("DYING_LOG"), *number = getenv("DYING_AFTER");
  from = getenv("DYING_FROM");
  after = number ? atol(number) : 0;
  if (log) out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct sigaction action = {.sa_sigaction = called, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) != 0) fail("SIGSYS cannot be handled");
  watch();
}
