/* Loaded before the C library: the time of day is another one, by as many milliseconds as a file says.
 *
 * SHIFTED_BY: the file. It is read at each call, so that a test can set the clock while the process runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift(void) {
  const char *file = getenv("SHIFTED_BY");
  char text[32] = {0};
  int in = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (in < 0) return 0;
  ssize_t length = read(in, text, sizeof text - 1);
  close(in);
  return length > 0 ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, at);
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  long long nanoseconds = at->tv_sec * 1000000000LL + at->tv_nsec + shift() * 1000000LL;
  at->tv_sec = nanoseconds / 1000000000LL;
  at->tv_nsec = nanoseconds % 1000000000LL;
  return 0;
}

/* The clocks that PostgreSQL reads. */
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  int told = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return told;
}

time_t time(time_t *at) {
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
