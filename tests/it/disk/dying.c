/* Loaded before the C library: the process kills itself behind one of its system calls that change a file or send to a
 * socket.
 *
 * A system call that does not go through the C library is not seen (`renameat2` of the crate rustix), but the sync of the
 * directory behind it is.
 *
 * DYING_AFTER: behind which of them, from 1; 0 for none. DYING_LOG: a file that gets one letter for each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int out = -1;
static long after, calls;

__attribute__((constructor)) static void begin(void) {
  const char *log = getenv("DYING_LOG"), *number = getenv("DYING_AFTER");
  after = number ? atol(number) : 0;
  if (log) out = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void changed(char letter) {
  if (out >= 0 && syscall(SYS_write, out, &letter, 1) != 1) abort();
  if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) == after) kill(getpid(), SIGKILL);
}

static int is_file(int fd) {
  struct stat given;
  return fstat(fd, &given) == 0 && S_ISREG(given.st_mode);
}

static int is_stored(int fd) {
  struct stat given;
  return fstat(fd, &given) == 0 && (S_ISREG(given.st_mode) || S_ISDIR(given.st_mode));
}

static int is_socket(int fd) {
  struct stat given;
  return fstat(fd, &given) == 0 && S_ISSOCK(given.st_mode);
}

#define REAL(type, name, parameters) \
  static type(*real) parameters; \
  if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, name)

#define PASS(letter, good, type, name, parameters, arguments) \
  type name parameters { \
    REAL(type, #name, parameters); \
    type result = real arguments; \
    if (result >= 0 && (good)) changed(letter); \
    return result; \
  }

PASS('w', is_file(fd), ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size))
PASS('w', is_file(fd), ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
PASS('w', is_file(fd), ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
PASS('n', is_socket(fd), ssize_t, writev, (int fd, const struct iovec *from, int parts), (fd, from, parts))
PASS('n', 1, ssize_t, send, (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
PASS('t', 1, int, ftruncate, (int fd, off_t size), (fd, size))
PASS('t', 1, int, ftruncate64, (int fd, off64_t size), (fd, size))
PASS('s', is_stored(fd), int, fsync, (int fd), (fd))
PASS('s', is_file(fd), int, fdatasync, (int fd), (fd))
PASS('d', 1, int, mkdir, (const char *path, mode_t mode), (path, mode))
PASS('u', 1, int, unlink, (const char *path), (path))
PASS('r', 1, int, rename, (const char *from, const char *to), (from, to))
PASS('r', 1, int, renameat, (int at, const char *from, int in, const char *to), (at, from, in, to))
PASS('l', 1, int, link, (const char *from, const char *to), (from, to))
PASS('l', 1, int, linkat, (int at, const char *from, int in, const char *to, int flags), (at, from, in, to, flags))
PASS('m', 1, int, fchmod, (int fd, mode_t mode), (fd, mode))
PASS('m', 1, int, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(int, #name, (const char *, int, ...)); \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
      va_list rest; \
      va_start(rest, flags); \
      mode = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    int makes = (flags & O_CREAT) && access(path, F_OK) != 0; \
    int fd = real(path, flags, mode); \
    if (fd >= 0 && makes) changed('o'); \
    return fd; \
  }

OPEN(open)
OPEN(open64)
