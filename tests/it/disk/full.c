/* Loaded before the C library: a disk with so much room, for the files whose paths begin with FULL_FILES.
 *
 * FULL_ROOM: a file with a 64-bit number, the bytes by which these files may still grow. A write that needs more is cut short
 * where the room ends; one that finds no room at all fails with ENOSPC. What does not make a file longer needs no room. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic int64_t *room(void) {
  static _Atomic int64_t *_Atomic known;
  if (known) return known;
  const char *name = getenv("FULL_ROOM");
  int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) abort();
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) abort();
  return known = mapped;
}

static int is_meant(int fd) {
  char link[64], path[PATH_MAX];
  const char *files = getenv("FULL_FILES");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  return files && length >= (ssize_t)strlen(files) && strncmp(path, files, strlen(files)) == 0;
}

/* How many of `count` bytes at `offset` there is room for. */
static size_t fits(int fd, size_t count, off64_t offset) {
  struct stat64 file;
  if (!is_meant(fd) || fstat64(fd, &file) != 0) return count;
  int64_t longer = offset + (int64_t)count - file.st_size;
  if (longer <= 0) return count;
  int64_t left = atomic_load(room()), taken;
  do taken = left < longer ? left : longer;
  while (!atomic_compare_exchange_weak(room(), &left, left - taken));
  int64_t written = (int64_t)count - (longer - taken);
  return written > 0 ? (size_t)written : 0;
}

static ssize_t write_at(const char *name, int fd, const void *bytes, size_t count, off64_t offset) {
  ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, name);
  if (!real) return errno = ENOSYS, -1;
  size_t written = fits(fd, count, offset);
  if (written == 0 && count > 0) return errno = ENOSPC, -1;
  return real(fd, bytes, written, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
  return write_at("pwrite", fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
  return write_at("pwrite64", fd, bytes, count, offset);
}
