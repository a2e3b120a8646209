/* The text of `cenote holders`: for each GPU a line that says how it stands, then its processes,
 * most bytes first, each with what its ledger says below it. */
#include "cli/holders.h"

#include "cli/cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"

enum { WIDTH = 80, OWNERS = 6 };

static const uint64_t GIB = 1 << 30;

static uint64_t size_of(int64_t difference) {
    return difference < 0 ? -(uint64_t)difference : (uint64_t)difference;
}

/* Prints text in exactly `width` columns; what does not fit ends in "...". */
static void put_fixed(const char *text, int width) {
    int have = cli_columns(text), put = 0;
    int keep = have > width ? width - 3 : width;
    const char *at = text;
    for (; *at; at++) {
        if ((*at & 0xc0) != 0x80 && put++ == keep) {
            break;
        }
    }
    printf("%.*s%s", (int)(at - text), text, have > width ? "..." : "");
    printf("%*s", have < width ? width - have : 0, "");
}

/* Words that follow each other with ", ", wrapped below each other. */
typedef struct line {
    int column; /* 0: nothing is on the line yet */
} line;

static void put_word(line *l, const char *word) {
    int length = cli_columns(word);
    if (l->column && l->column + 2 + length + 1 <= WIDTH) {
        printf(", %s", word);
        l->column += 2 + length;
        return;
    }
    printf("%s      %s", l->column ? ",\n" : "", word);
    l->column = 6 + length;
}

static void put_ledger(const cen_holder *h) {
    line l = {0};
    char word[128], size[CLI_SIZE];
    uint64_t rest = 0;
    for (size_t i = 0; i < h->owner_count; i++) {
        if (i >= OWNERS) {
            rest += h->owners[i].bytes;
            continue;
        }
        snprintf(word, sizeof word, "%s %s", h->owners[i].name,
                 cli_size_text(size, h->owners[i].bytes));
        put_word(&l, word);
    }
    if (rest) {
        snprintf(word, sizeof word, "others %s", cli_size_text(size, rest));
        put_word(&l, word);
    }
    if (h->device_bytes == CEN_BYTES_UNKNOWN) {
        put_word(&l, "all by its ledger: the driver does not tell");
    } else {
        snprintf(word, sizeof word, "%s %c%s", h->physical ? "unexplained" : "not the allocator's",
                 h->unexplained_bytes < 0 ? '-' : '+',
                 cli_size_text(size, size_of(h->unexplained_bytes)));
        put_word(&l, word);
    }
    printf("\n");
}

typedef struct widths {
    int pid, user, program;
} widths;

static int digits(int number) {
    return snprintf(NULL, 0, "%d", number);
}

static const char *user_of(const cen_holder *h) {
    return *h->user ? h->user : "?";
}

static const char *program_of(const cen_holder *h) {
    return *h->program ? h->program : h->dead ? "gone" : "?";
}

/* The columns of a device's processes; the bytes take 11. */
static widths measure(const cen_holder_device *device) {
    widths w = {1, 1, 1};
    for (size_t i = 0; i < device->holder_count; i++) {
        const cen_holder *h = &device->holders[i];
        int pid = digits(h->pid), user = cli_columns(user_of(h)),
            program = cli_columns(program_of(h));
        w.pid = pid > w.pid ? pid : w.pid;
        w.user = user > w.user ? user : w.user;
        w.program = program > w.program ? program : w.program;
    }
    w.user = w.user > 16 ? 16 : w.user;
    int room = WIDTH -
               (int)strlen("  pid  "
                           "  "
                           "  ") -
               w.pid - w.user - 11;
    w.program = w.program > room ? room : w.program;
    return w;
}

static void put_holder(const cen_holder *h, const widths *w) {
    printf("  pid %-*d ", w->pid, h->pid);
    put_fixed(user_of(h), w->user);
    printf("  ");
    put_fixed(program_of(h), w->program);
    if (h->device_bytes == CEN_BYTES_UNKNOWN) {
        printf("  %11s\n", "? GiB");
    } else {
        char size[CLI_SIZE];
        printf("  %11s\n", cli_size_text(size, h->device_bytes));
    }
    if (h->dead) {
        printf("      no such process here: it died and its memory is still held,\n"
               "      or it lives in another container\n");
    }
    if (h->has_ledger) {
        put_ledger(h);
    }
}

static void put_device(const cen_holder_device *d) {
    size_t n = d->holder_count;
    char head[256], claim[96], size[CLI_SIZE], used[CLI_SIZE];
    if (d->used_bytes < GIB) {
        cli_size_text(used, d->used_bytes);
    } else {
        snprintf(used, sizeof used, "%.1f", (double)d->used_bytes / (double)GIB);
    }
    snprintf(head, sizeof head, "GPU %d  %s  %s of %.1f GiB used: ", d->index, d->name, used,
             (double)d->total_bytes / (double)GIB);
    int length = snprintf(claim, sizeof claim,
                          n == 0   ? "no process"
                          : n == 1 ? "1 process"
                                   : "%zu processes",
                          n);
    int64_t unclaimed = d->unclaimed_bytes;
    cli_size_text(size, size_of(unclaimed));
    if (!n) { /* all that is used is claimed by none, then */
        claim[length] = '\0';
    } else if (unclaimed >= 0) {
        snprintf(claim + length, sizeof claim - (size_t)length, ", %s claimed by none", size);
    } else {
        snprintf(claim + length, sizeof claim - (size_t)length, ", claimed %s too much", size);
    }
    bool fits = cli_columns(head) + cli_columns(claim) <= WIDTH;
    printf("%s%s%s\n", head, fits ? "" : "\n  ", claim);
    widths w = measure(d);
    for (size_t i = 0; i < n; i++) {
        put_holder(&d->holders[i], &w);
    }
}

void holders_print(const cen_holders *holders, const cen_holder_device *only) {
    for (size_t i = 0; i < cen_holders_device_count(holders); i++) {
        const cen_holder_device *device = cen_holders_device(holders, i);
        if (!only || only == device) {
            put_device(device);
        }
    }
}
