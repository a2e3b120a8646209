/* A ledger as it is in its file: docs/formats/ledger.md says the same in words.
 *
 * A head of fixed places, then regions, each an array that the head tells the place of. A region
 * that grows is made anew at the file's end; the head's second place for it is filled in, then made
 * the valid one. What others refer to is written before what refers to it, and a count is raised
 * after what it counts, so that a writer that is killed anywhere leaves a file that can be read.
 *
 * All is little-endian, and every struct here is laid out without holes. `major` changes when an
 * old reader would misread, `minor` when something is added that it may skip. */
#ifndef CENI_LEDGER_FORMAT_H
#define CENI_LEDGER_FORMAT_H

#include <stdatomic.h>
#include <stdint.h>

#include "cenote/ledger.h"
#include "trace/format.h"

#define CENI_LEDGER_MAGIC                                                                          \
    "\x89"                                                                                         \
    "CENLGR\n" /* 8 bytes; the first is in no text */
#define CENI_LEDGER_MAJOR      1
#define CENI_LEDGER_MINOR      0
#define CENI_LEDGER_ORDER      UINT32_C(0x01020304) /* the order of its bytes */
#define CENI_LEDGER_BYTES_MOST (UINT64_C(1) << 48)  /* of an entry: sums stay in 64 bits */
#define CENI_LEDGER_FAILURES   64                   /* the latest that are kept */
#define CENI_LEDGER_SAMPLES    32 /* the latest steps that are kept of a holding */

enum ceni_ledger_part {
    CENI_LEDGER_LIVE,     /* ceni_ledger_slot: open addressing, its count is its capacity */
    CENI_LEDGER_EVENTS,   /* ceni_ledger_event: a ring; event n is at n modulo the capacity */
    CENI_LEDGER_HOLDINGS, /* ceni_ledger_holding */
    CENI_LEDGER_STACKS,   /* ceni_ledger_span, of frames */
    CENI_LEDGER_FRAMES,   /* ceni_frame_record, innermost first */
    CENI_LEDGER_MODULES,  /* ceni_module_record */
    CENI_LEDGER_STRINGS,  /* ceni_ledger_span, of the text */
    CENI_LEDGER_TEXT,     /* bytes; no NUL follows a string */
    CENI_LEDGER_PARTS
};

/* An entry. `used` is 0 while the rest is written. */
typedef struct ceni_ledger_slot {
    uint64_t key, bytes, stream;
    int64_t time_us;
    uint32_t stack, step;
    uint16_t device;
    uint8_t kind, less;
    _Atomic uint32_t used;
} ceni_ledger_slot;
_Static_assert(sizeof(ceni_ledger_slot) == 48, "no holes");

enum ceni_ledger_what {
    CENI_LEDGER_ADDED = 1,
    CENI_LEDGER_REMOVED = 2,
    CENI_LEDGER_RESIZED = 3, /* bytes: since then; stream: the bytes before */
    CENI_LEDGER_FAILED = 4,  /* key: the device's free bytes */
    CENI_LEDGER_STEPPED = 5, /* key: the steps done */
    CENI_LEDGER_LESS = 128   /* a flag: of an entry that is `less` */
};

typedef struct ceni_ledger_event {
    uint64_t key, bytes, stream;
    int64_t time_us;
    uint32_t stack;
    uint16_t device;
    uint8_t kind, what;
} ceni_ledger_event;
_Static_assert(sizeof(ceni_ledger_event) == 40, "no holes");

/* What a stack holds of a device. Step n's sample is at n modulo CENI_LEDGER_SAMPLES; samples are
 * put down when the holding changes next: steps from `sampled` on saw the live bytes of now. */
typedef struct ceni_ledger_holding {
    uint32_t stack;
    uint16_t device, reserved;
    uint64_t live_bytes, live_count;
    uint32_t first;   /* the steps done when it first held anything */
    uint32_t sampled; /* the samples of the steps before this one are there */
    uint64_t samples[CENI_LEDGER_SAMPLES];
} ceni_ledger_holding;
_Static_assert(sizeof(ceni_ledger_holding) == 288, "no holes");

typedef struct ceni_ledger_span {
    uint32_t first, count;
} ceni_ledger_span;

typedef struct ceni_ledger_place {
    uint64_t offset, capacity; /* in the file; in elements */
} ceni_ledger_place;

typedef struct ceni_ledger_region {
    ceni_ledger_place place[2];
    _Atomic uint64_t count; /* of elements that are there; of the ring: of all events so far */
    _Atomic uint32_t which; /* the place that is valid */
    uint32_t element;       /* bytes of one */
} ceni_ledger_region;
_Static_assert(sizeof(ceni_ledger_region) == 48, "no holes");

typedef struct ceni_ledger_device {
    char uuid[48], name[128];
    uint64_t total_bytes, peak_bytes;
    uint32_t known, reserved;
} ceni_ledger_device;
_Static_assert(sizeof(ceni_ledger_device) == 200, "no holes");

typedef struct ceni_ledger_failed {
    uint64_t bytes, free_bytes, stream;
    int64_t time_us;
    uint32_t stack;
    uint16_t device, reserved;
} ceni_ledger_failed;
_Static_assert(sizeof(ceni_ledger_failed) == 40, "no holes");

typedef struct ceni_ledger_head {
    char magic[8];
    uint16_t major, minor;
    uint32_t order;
    uint32_t bytes; /* of this head */
    uint32_t parts; /* regions that it tells of */
    uint64_t pid, start_ticks;
    int64_t started_us;
    char program[256], writer[32];

    _Atomic uint64_t seq; /* odd while something changes */
    _Atomic int64_t changed_us;
    _Atomic uint32_t closed, steps;
    _Atomic uint64_t adds, removes, failures, lost, live;

    /* Readers write these. The first, of CLOCK_MONOTONIC, asks for no changes until then. */
    _Atomic uint64_t hold_until_ns;
    _Atomic uint64_t watcher;  /* the process that watches, 0: none */
    _Atomic uint64_t answered; /* failures that it has read */

    ceni_ledger_region region[CENI_LEDGER_PARTS];
    ceni_ledger_failed failed[CENI_LEDGER_FAILURES]; /* failure n is at n modulo the size */
    ceni_ledger_device device[CEN_LEDGER_DEVICES];
} ceni_ledger_head;
_Static_assert(sizeof(ceni_ledger_head) == 16168 && sizeof(_Atomic uint64_t) == 8, "no holes");

#endif
