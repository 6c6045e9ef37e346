/* A library for LD_PRELOAD: it shifts the wall clock by the seconds in the file that CAMPAIGN_CLOCK names, which may
   change at any time. Monotonic clocks stay unchanged, as on a machine whose clock is set. Waits until a time of day
   use the shifted clock, too: otherwise a wait would never sleep after a jump back, because its deadline is past. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000L
#define LOOK_NS 20000000L  /* the file is read again after this time */
#define SLICE_NS 50000000L /* a wait checks for a jump this often */
#define WALL_S 1000000000L /* a later deadline is of the wall clock: no machine is up for 30 years */

#define REAL(name, version) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlvsym(RTLD_NEXT, #name, version); \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

static int read_clock(clockid_t id, struct timespec *at) {
    REAL(clock_gettime, "GLIBC_2.17")
    return real(id, at);
}

static long read_offset(void) {
    char text[32] = {0};
    const char *path = getenv("CAMPAIGN_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}

static long offset(void) {
    static atomic_long next, known;
    struct timespec at;
    read_clock(CLOCK_MONOTONIC, &at);
    long now = at.tv_sec * NS + at.tv_nsec;
    if (now >= next) {
        known = read_offset();
        next = now + LOOK_NS;
    }
    return known;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = read_clock(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed) *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return (time_t)-1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* The real time until which this slice waits. 1 if it is before the deadline, so that another slice follows. */
static int slice(const struct timespec *deadline, struct timespec *until) {
    if (deadline->tv_sec < WALL_S) {
        *until = *deadline;
        return 0;
    }
    read_clock(CLOCK_REALTIME, until);
    long left = (deadline->tv_sec - offset() - until->tv_sec) * NS + deadline->tv_nsec - until->tv_nsec;
    long wait = until->tv_nsec + (left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS);
    until->tv_sec += wait / NS;
    until->tv_nsec = wait % NS;
    return left > SLICE_NS;
}

/* The end of a slice is a spurious wake-up: a second wait in here would miss a signal between the two. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *deadline) {
    REAL(pthread_cond_timedwait, "GLIBC_2.3.2")
    struct timespec until;
    int more = slice(deadline, &until), code = real(cond, mutex, &until);
    return more && code == ETIMEDOUT ? 0 : code;
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict deadline) {
    REAL(cnd_timedwait, "GLIBC_2.28")
    struct timespec until;
    int more = slice(deadline, &until), code = real(cond, mutex, &until);
    return more && code == thrd_timedout ? thrd_success : code;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    REAL(sem_timedwait, "GLIBC_2.34")
    struct timespec until;
    int more, code;
    do {
        more = slice(deadline, &until);
        code = real(semaphore, &until);
    } while (more && code && errno == ETIMEDOUT);
    return code;
}
