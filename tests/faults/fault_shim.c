// LD_PRELOAD: makes chosen file calls of chosen programs fail, write short or stall, and shifts the
// wall clock. Tests only (README.md).
//
// ANYORDER_FAULTS holds rules, ";" between them, of fields with "," between them:
//   program=NAME   of the process (its file name); left out: every process
//   call=NAME      write rename sync unlink open (sync: fsync and fdatasync)
//   path=TEXT      part of the file's name
//   nth=N          the first call, counted in each process, that is hit (1)
//   times=N        how many are, from there on (all)
//   short=N        the first one hit writes only N bytes; those after it do as `errno` says
//   errno=N        fails with this number; left out: the call goes through, after the stall
//   stall_ms=N     waits first
//   while=FILE     only while this file exists; with `stall_ms`, waits until it is gone
// ANYORDER_CLOCK names a file of eight bytes, a number of nanoseconds that is added to the wall
// clock of every process and may change while they run.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 8
#define MAX_TEXT 256

struct Rule {
  char program[MAX_TEXT], call[MAX_TEXT], path[MAX_TEXT], while_file[MAX_TEXT];
  long nth, times, short_bytes, error, stall_ms;
  atomic_long calls;
};

static struct Rule rules[MAX_RULES];
static int num_rules;
static const volatile int64_t* clock_offset;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void SetField(struct Rule* rule, const char* key, const char* value) {
  if (!strcmp(key, "program")) snprintf(rule->program, MAX_TEXT, "%s", value);
  if (!strcmp(key, "call")) snprintf(rule->call, MAX_TEXT, "%s", value);
  if (!strcmp(key, "path")) snprintf(rule->path, MAX_TEXT, "%s", value);
  if (!strcmp(key, "while")) snprintf(rule->while_file, MAX_TEXT, "%s", value);
  if (!strcmp(key, "nth")) rule->nth = atol(value);
  if (!strcmp(key, "times")) rule->times = atol(value);
  if (!strcmp(key, "short")) rule->short_bytes = atol(value);
  if (!strcmp(key, "errno")) rule->error = atol(value);
  if (!strcmp(key, "stall_ms")) rule->stall_ms = atol(value);
}

static void ParseRule(char* text) {
  struct Rule* rule = &rules[num_rules];
  rule->nth = 1;
  rule->times = INT32_MAX;
  rule->short_bytes = -1;
  char* rest = NULL;
  for (char* field = strtok_r(text, ",", &rest); field; field = strtok_r(NULL, ",", &rest)) {
    char* equals = strchr(field, '=');
    if (!equals) abort();
    *equals = 0;
    SetField(rule, field, equals + 1);
  }
  if (!rule->program[0] || !strcmp(rule->program, program_invocation_short_name)) ++num_rules;
}

static void ReadEnvironment(void) {
  const char* text = getenv("ANYORDER_FAULTS");
  if (text) {
    char* copy = strdup(text);
    char* rest = NULL;
    for (char* rule = strtok_r(copy, ";", &rest); rule; rule = strtok_r(NULL, ";", &rest)) {
      if (num_rules == MAX_RULES) abort();
      ParseRule(rule);
    }
    free(copy);
  }
  const char* clock_file = getenv("ANYORDER_CLOCK");
  if (!clock_file) return;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, clock_file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) abort();
  void* page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (page == MAP_FAILED) abort();
  clock_offset = page;
}

static int Exists(const char* file) { return syscall(SYS_faccessat, AT_FDCWD, file, F_OK) == 0; }

static void Sleep(long ms) {
  struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  syscall(SYS_nanosleep, &span, NULL);
}

static void Stall(const struct Rule* rule) {
  if (!rule->while_file[0]) return Sleep(rule->stall_ms);
  while (Exists(rule->while_file)) Sleep(5);
}

// What becomes of a call: -1 with errno set: it fails; otherwise the number of bytes to write at
// most. `path` may be null: then it is that of `fd`.
static ssize_t Judge(const char* call, const char* path, int fd, size_t bytes) {
  pthread_once(&once, ReadEnvironment);
  const int saved = errno;
  char name[4096] = "";
  for (int i = 0; i < num_rules; ++i) {
    struct Rule* rule = &rules[i];
    if (strcmp(rule->call, call)) continue;
    if (!path && !name[0]) {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      const ssize_t length = readlink(link, name, sizeof name - 1);
      name[length > 0 ? length : 0] = 0;
    }
    if (!strstr(path ? path : name, rule->path)) continue;
    if (rule->while_file[0] && !Exists(rule->while_file)) continue;
    const long number = atomic_fetch_add(&rule->calls, 1) + 1 - rule->nth;
    if (number < 0 || number >= rule->times) continue;
    if (rule->stall_ms) Stall(rule);
    if (number == 0 && rule->short_bytes >= 0) {
      errno = saved;
      return rule->short_bytes < (long)bytes ? rule->short_bytes : (long)bytes;
    }
    if (rule->error) {
      errno = (int)rule->error;
      return -1;
    }
  }
  errno = saved;
  return (ssize_t)bytes;
}

ssize_t write(int fd, const void* data, size_t bytes) {
  const ssize_t allowed = Judge("write", NULL, fd, bytes);
  return allowed < 0 ? -1 : REAL(write)(fd, data, (size_t)allowed);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const ssize_t allowed = Judge("write", NULL, fd, bytes);
  return allowed < 0 ? -1 : REAL(pwrite)(fd, data, (size_t)allowed, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  const ssize_t allowed = Judge("write", NULL, fd, bytes);
  return allowed < 0 ? -1 : REAL(pwrite64)(fd, data, (size_t)allowed, offset);
}
int rename(const char* from, const char* to) {
  return Judge("rename", to, -1, 0) < 0 ? -1 : REAL(rename)(from, to);
}
int fsync(int fd) { return Judge("sync", NULL, fd, 0) < 0 ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return Judge("sync", NULL, fd, 0) < 0 ? -1 : REAL(fdatasync)(fd); }
int unlink(const char* path) { return Judge("unlink", path, -1, 0) < 0 ? -1 : REAL(unlink)(path); }

static mode_t ModeOf(int flags, va_list arguments) {
  return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}
#define DEFINE_OPEN(name, parameters, ...)                  \
  int name parameters {                                     \
    va_list arguments;                                      \
    va_start(arguments, flags);                             \
    const mode_t mode = ModeOf(flags, arguments);           \
    va_end(arguments);                                      \
    if (Judge("open", path, -1, 0) < 0) return -1;          \
    return REAL(name)(__VA_ARGS__, mode);                   \
  }
DEFINE_OPEN(open, (const char* path, int flags, ...), path, flags)
DEFINE_OPEN(open64, (const char* path, int flags, ...), path, flags)
DEFINE_OPEN(openat, (int directory, const char* path, int flags, ...), directory, path, flags)
DEFINE_OPEN(openat64, (int directory, const char* path, int flags, ...), directory, path, flags)
FILE* fopen(const char* path, const char* mode) {
  return Judge("open", path, -1, 0) < 0 ? NULL : REAL(fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return Judge("open", path, -1, 0) < 0 ? NULL : REAL(fopen64)(path, mode);
}

static int64_t ClockOffset(void) {
  pthread_once(&once, ReadEnvironment);
  return clock_offset ? *clock_offset : 0;
}
static int64_t ShiftedNow(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec + ClockOffset();
}
int clock_gettime(clockid_t clock, struct timespec* time) {
  if (clock != CLOCK_REALTIME) return (int)syscall(SYS_clock_gettime, clock, time);
  const int64_t now = ShiftedNow();
  *time = (struct timespec){now / 1000000000, now % 1000000000};
  return 0;
}
int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  const int64_t now = ShiftedNow();
  *time = (struct timeval){now / 1000000000, now % 1000000000 / 1000};
  return 0;
}
time_t time(time_t* result) {
  const time_t now = ShiftedNow() / 1000000000;
  if (result) *result = now;
  return now;
}
