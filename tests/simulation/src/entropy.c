/* Randomness that a seed decides: the name of a thread is the seed of all that is drawn in it.
 *
 * The order of Rust's hash maps, which branch of a `select!` comes first, jitter, tokens: all of it begins with this one function, and
 * a history is to be the same each time. Linked into the simulation alone, in front of libc's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>
static __thread uint64_t state;
static uint64_t next(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* Memory that the agent gives back after a burst is memory that the next history asks for again. */
int malloc_trim(size_t pad)
{
    (void)pad;
    return 0;
}
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    (void)flags;
    if (state == 0) {
        char name[16] = {0};
        pthread_getname_np(pthread_self(), name, sizeof name);
        state = 0xcbf29ce484222325u;
        for (const char *c = name; *c; c++) state = (state ^ (uint8_t)*c) * 0x100000001b3u;
    }
    uint8_t *out = buffer;
    for (size_t i = 0; i < length; i++) out[i] = (uint8_t)next();
    return (ssize_t)length;
}
