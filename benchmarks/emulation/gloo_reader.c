/* Preloaded: gloo's thread that reads the sockets gives its core to the thread it waits for.
 *
 * Bytes that arrive wake it while another thread of its rank, which holds the lock of their
 * connection, runs on the same core. gloo then only tries to lock, and asks epoll again at once,
 * which reports the same bytes: for up to 4 ms, until the scheduler's next tick. A rank of a real
 * host has more cores than one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

enum { FRUITLESS_NS = 4000, PAUSE_NS = 20000 }; /* from one answer of epoll to the next question */

static __thread int is_reader;

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int pthread_setname_np(pthread_t thread, const char *name) {
    int (*real)(pthread_t, const char *) = dlsym(RTLD_NEXT, "pthread_setname_np");
    is_reader = strcmp(name, "gloo_tcp_loop") == 0;
    if (is_reader)
        prctl(PR_SET_TIMERSLACK, 1);
    return real(thread, name);
}

int epoll_wait(int queue, struct epoll_event *events, int most, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    static __thread long answered_ns;
    if (real == NULL)
        real = dlsym(RTLD_NEXT, "epoll_wait");
    if (is_reader && now_ns() - answered_ns < FRUITLESS_NS)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    int count = real(queue, events, most, timeout_ms);
    if (is_reader)
        answered_ns = now_ns();
    return count;
}
