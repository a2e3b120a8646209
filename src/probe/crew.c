/* Threads that begin a job together. */
#include "probe/host.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct member {
    ceni_crew *crew;
    uint32_t index;
    pthread_t thread;
    uint64_t begin, end;
} member;

struct ceni_crew {
    uint32_t threads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t jobs; /* given so far */
    uint32_t done; /* with the last one */
    bool over;
    void (*job)(void *arg, uint32_t i);
    void *arg;
    atomic_uint awake; /* for the last one: it begins when all are */
    member members[];
};

/* Waits for the job after the `seen`-th; false: there will be none. */
static bool wait_for_job(ceni_crew *crew, uint64_t seen) {
    pthread_mutex_lock(&crew->lock);
    while (crew->jobs == seen && !crew->over) {
        pthread_cond_wait(&crew->changed, &crew->lock);
    }
    bool over = crew->over;
    pthread_mutex_unlock(&crew->lock);
    return !over;
}

static void *work(void *arg) {
    member *m = arg;
    ceni_crew *crew = m->crew;
    for (uint64_t seen = 0; wait_for_job(crew, seen); seen++) {
        atomic_fetch_add(&crew->awake, 1);
        while (atomic_load(&crew->awake) < crew->threads) {
            sched_yield();
        }
        m->begin = ceni_now_ns();
        crew->job(crew->arg, m->index);
        m->end = ceni_now_ns();
        pthread_mutex_lock(&crew->lock);
        crew->done++;
        pthread_cond_broadcast(&crew->changed);
        pthread_mutex_unlock(&crew->lock);
    }
    return NULL;
}

/* A thread on that processor; on any where the system does not let us choose. */
static int start_on(member *m, uint32_t cpu) {
    pthread_attr_t attr;
    cpu_set_t set;
    int error = pthread_attr_init(&attr);
    if (error) {
        return error;
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    error = pthread_create(&m->thread, &attr, work, m);
    pthread_attr_destroy(&attr);
    return error == EINVAL ? pthread_create(&m->thread, NULL, work, m) : error;
}

int ceni_crew_start(const ceni_host_system *system, uint32_t threads, ceni_crew **crew) {
    ceni_crew *made = ceni_calloc(1, sizeof *made + threads * sizeof *made->members);
    int error = made ? 0 : ENOMEM;
    if (error) {
        return error;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    while (made->threads < threads && !error) {
        member *m = &made->members[made->threads];
        m->crew = made;
        m->index = made->threads;
        error = start_on(m, system->cpus[made->threads % system->cpu_count]);
        made->threads += !error;
    }
    if (error) {
        ceni_crew_stop(made);
        return error;
    }
    *crew = made;
    return 0;
}

double ceni_crew_run(ceni_crew *crew, void (*job)(void *arg, uint32_t i), void *arg) {
    uint64_t begin = UINT64_MAX, end = 0;
    pthread_mutex_lock(&crew->lock);
    crew->job = job;
    crew->arg = arg;
    crew->done = 0;
    atomic_store(&crew->awake, 0);
    crew->jobs++;
    pthread_cond_broadcast(&crew->changed);
    while (crew->done < crew->threads) {
        pthread_cond_wait(&crew->changed, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->threads; i++) {
        const member *m = &crew->members[i];
        begin = m->begin < begin ? m->begin : begin;
        end = m->end > end ? m->end : end;
    }
    return end > begin ? (double)(end - begin) * 1e-9 : 1e-9;
}

uint32_t ceni_crew_threads(const ceni_crew *crew) {
    return crew->threads;
}

void ceni_crew_stop(ceni_crew *crew) {
    if (!crew) {
        return;
    }
    pthread_mutex_lock(&crew->lock);
    crew->over = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->threads; i++) {
        pthread_join(crew->members[i].thread, NULL);
    }
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    ceni_free(crew);
}
