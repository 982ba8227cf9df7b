/* Loaded before the C library: fsync and fdatasync of one file fail, once a file says so, and each failure is counted.
 *
 * FAILING_FILE: the file whose sync fails. FAILING_FROM: a file whose existence begins it. FAILING_COUNT: a file that gets
 * one byte for each sync that has failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int fails(int fd) {
  const char *file = getenv("FAILING_FILE"), *from = getenv("FAILING_FROM"), *count = getenv("FAILING_COUNT");
  struct stat meant, given;
  if (!file || !from || !count || access(from, F_OK) != 0) return 0;
  if (stat(file, &meant) != 0 || fstat(fd, &given) != 0) return 0;
  if (meant.st_dev != given.st_dev || meant.st_ino != given.st_ino) return 0;
  int out = open(count, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (out >= 0) {
    if (write(out, "x", 1) != 1) abort();
    close(out);
  }
  return 1;
}

static int pass(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return real ? real(fd) : (errno = ENOSYS, -1);
}

int fsync(int fd) { return fails(fd) ? (errno = EIO, -1) : pass("fsync", fd); }

int fdatasync(int fd) { return fails(fd) ? (errno = EIO, -1) : pass("fdatasync", fd); }
