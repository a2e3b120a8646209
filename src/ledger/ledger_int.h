/* The ledger's insides: the writer's side, and what readers see of a copy.
 *
 * Writer: ledger.c makes and closes, region.c maps and grows the file, table.c finds entries in it,
 * entry.c adds and removes them, stack.c gathers and interns, fail.c tells of requests that failed.
 * Readers: file.c and file_check.c copy (the part below, ledger/file.h), view.c holds the copy,
 * view_*.c say what it means.
 *
 * A ledger's lock is taken by every writing function between ceni_ledger_enter and _leave, and is
 * held by nobody who calls out: stacks are unwound and modules looked for before. */
#ifndef CENI_LEDGER_INT_H
#define CENI_LEDGER_INT_H

#include <pthread.h>

#include "base/fd.h"
#include "base/map.h"
#include "ledger/file.h"
#include "trace/emit_gather.h"

#define CENI_LEDGER_RECENT 2048

/* A stack that was noted lately, for who does not hold the lock. Its two words are loaded and
 * stored one by one: one without the other gives no mark that anybody has. */
typedef struct ceni_ledger_recent {
    _Atomic uint64_t mark; /* xor id */
    _Atomic uint64_t id;
} ceni_ledger_recent;

struct cen_ledger {
    pthread_mutex_t lock;
    unsigned forks; /* how often this process's line had forked when it was made */
    int fd;
    ceni_fd_id id; /* of its file */
    char *path;    /* NULL: it is in memory only */
    uint64_t end;  /* the file's length */
    ceni_ledger_head *head;
    void *mapped[CENI_LEDGER_PARTS];
    size_t mapped_bytes[CENI_LEDGER_PARTS];
    cen_ledger_options options;
    ceni_map strings, stacks; /* hash -> id */
    ceni_map holdings;        /* stack and device -> index */
    ceni_ledger_recent recent[CENI_LEDGER_RECENT];
    ceni_module_list modules;
    int64_t held[CEN_LEDGER_DEVICES]; /* of summed kinds */
    bool told;                        /* that there is no room: once is enough */
};

/* An array of the file, typed. */
#define CENI_LEDGER_SLOTS(l) ((ceni_ledger_slot *)(l)->mapped[CENI_LEDGER_LIVE])
#define CENI_LEDGER_RING(l)  ((ceni_ledger_event *)(l)->mapped[CENI_LEDGER_EVENTS])
#define CENI_LEDGER_HELD(l)  ((ceni_ledger_holding *)(l)->mapped[CENI_LEDGER_HOLDINGS])
#define CENI_LEDGER_COUNT(l, p)                                                                    \
    atomic_load_explicit(&(l)->head->region[p].count, memory_order_relaxed)

static inline uint64_t ceni_ledger_capacity(const cen_ledger *l, enum ceni_ledger_part part) {
    return ceni_ledger_place_of(&l->head->region[part])->capacity;
}

/* ---- ledger.c ---- */

/* CEN_ERR_INVALID: NULL; CEN_ERR_FORKED. Logged. */
cen_status ceni_ledger_check(const cen_ledger *ledger, const char *call);
/* Takes the lock, waits while a reader asks for it, and says that something changes. */
void ceni_ledger_enter(cen_ledger *ledger);
void ceni_ledger_leave(cen_ledger *ledger, int64_t now_us);
int64_t ceni_ledger_now_us(void);

/* The file, opened again if the program has closed it; -1 with errno: it cannot be. */
int ceni_ledger_fd(cen_ledger *ledger);

/* ---- region.c; the lock is held ---- */

/* Makes the head, and all regions at their first size. CEN_ERR_IO, CEN_ERR_HOST_MEMORY. */
cen_status ceni_ledger_map_all(cen_ledger *ledger);
void ceni_ledger_unmap_all(cen_ledger *ledger);
/* Makes a region larger: its elements stay. */
cen_status ceni_ledger_room(cen_ledger *ledger, enum ceni_ledger_part part, uint64_t more);
/* A region of another size beside the one that is valid, all zero, to be filled and swapped. */
cen_status ceni_ledger_spare(cen_ledger *ledger, enum ceni_ledger_part part, uint64_t capacity,
                             void **mapped);
void ceni_ledger_swap(cen_ledger *ledger, enum ceni_ledger_part part, void *mapped);

/* ---- table.c; the lock is held ---- */

/* The slot of an entry, or where it would be put. */
ceni_ledger_slot *ceni_ledger_probe(const cen_ledger *ledger, unsigned kind, unsigned device,
                                    uint64_t key);
/* The same on any device; NULL: there is none. */
ceni_ledger_slot *ceni_ledger_search(const cen_ledger *ledger, unsigned kind, uint64_t key);
/* Makes room for one more. */
cen_status ceni_ledger_table_room(cen_ledger *ledger);
void ceni_ledger_unslot(cen_ledger *ledger, ceni_ledger_slot *slot);

/* ---- entry.c; the lock is held ---- */

void ceni_ledger_note_event(cen_ledger *ledger, const ceni_ledger_event *event);

#endif
