#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    if (id == CLOCK_MONOTONIC) id = CLOCK_PROCESS_CPUTIME_ID;
    return syscall(SYS_clock_gettime, id, t);
}
