/* Which rank a file is of, and what to call it.
 *
 * The number after the word "rank" in the path counts if each path has one of its own. Otherwise
 * the paths have to be alike but for their numbers, and the number of which each path has one of
 * its own is the rank; of several such (a host, a time) the one whose largest value is the
 * smallest, as ranks count from 0. Otherwise a rank is its place in the list. */
#include "trace/diagnose_ranks.h"

#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Longer numbers are times or ids, none of ranks. */
enum { MAX_DIGITS = 9 };

static bool is_digit(char c) {
    return isdigit((unsigned char)c) != 0;
}

/* The number at `text`, which moves on past it; UINT64_MAX: it is too long. */
static uint64_t read_number(const char **text) {
    uint64_t value = 0;
    const char *first = *text;
    for (; is_digit(**text); ++*text) {
        value = *text - first < MAX_DIGITS ? value * 10 + (uint64_t)(**text - '0') : UINT64_MAX;
    }
    return *text - first > MAX_DIGITS ? UINT64_MAX : value;
}

/* The number after the last "rank", as in rank3, rank_03, Rank-3, rank=3; UINT64_MAX: none. */
static uint64_t after_word(const char *path) {
    uint64_t found = UINT64_MAX;
    for (; *path; path++) {
        if (!strncasecmp(path, "rank", 4)) {
            const char *at = path + 4;
            at += *at && strchr("_-=.", *at) != NULL;
            found = is_digit(*at) ? read_number(&at) : found;
        }
    }
    return found;
}

/* The path's index-th number; UINT64_MAX: it has no such. */
static uint64_t nth_number(const char *path, size_t index) {
    while (*path) {
        if (!is_digit(*path)) {
            path++;
            continue;
        }
        uint64_t value = read_number(&path);
        if (index-- == 0) {
            return value;
        }
    }
    return UINT64_MAX;
}

static size_t count_numbers(const char *path) {
    size_t count = 0;
    for (bool inside = false; *path; path++) {
        count += is_digit(*path) && !inside;
        inside = is_digit(*path);
    }
    return count;
}

/* Whether two paths are alike but for their numbers. */
static bool alike(const char *a, const char *b) {
    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            read_number(&a);
            read_number(&b);
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return !*a && !*b;
}

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Whether each value is there once and is a number; *most is the largest. */
static bool distinct(const uint64_t *values, uint64_t *sorted, size_t count, uint64_t *most) {
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, by_value);
    *most = sorted[count - 1];
    for (size_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1]) {
            return false;
        }
    }
    return *most != UINT64_MAX;
}

static void take(ceni_ranks *ranks, const uint64_t *values) {
    for (size_t i = 0; i < ranks->count; i++) {
        ranks->ranks[i].number = values[i];
    }
    ranks->numbered = true;
}

static void number_by_difference(ceni_ranks *ranks, const char *const *paths, uint64_t *values,
                                 uint64_t *sorted) {
    size_t count = ranks->count, numbers = count_numbers(paths[0]);
    uint64_t least = UINT64_MAX, most;
    for (size_t i = 1; i < count; i++) {
        if (!alike(paths[0], paths[i])) {
            return;
        }
    }
    for (size_t k = 0; k < numbers; k++) {
        for (size_t i = 0; i < count; i++) {
            values[i] = nth_number(paths[i], k);
        }
        if (distinct(values, sorted, count, &most) && most < least) {
            least = most;
            take(ranks, values);
        }
    }
}

/* The folders that all paths begin with. */
static size_t common_folders(const char *const *paths, size_t count) {
    size_t length = 0;
    for (size_t at = 0; paths[0][at]; at++) {
        for (size_t i = 1; i < count; i++) {
            if (paths[i][at] != paths[0][at]) {
                return length;
            }
        }
        length = paths[0][at] == '/' ? at + 1 : length;
    }
    return length;
}

cen_status ceni_ranks_number(ceni_ranks *ranks, const char *const *paths) {
    size_t count = ranks->count;
    uint64_t *values = ceni_malloc(2 * count * sizeof *values), most;
    if (!values) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        ranks->ranks[i].number = i;
        values[i] = after_word(paths[i]);
    }
    if (distinct(values, values + count, count, &most)) {
        take(ranks, values);
    } else {
        number_by_difference(ranks, paths, values, values + count);
    }
    ceni_free(values);
    size_t shared = common_folders(paths, count);
    for (size_t i = 0; i < count; i++) {
        ranks->ranks[i].name = ceni_strdup(paths[i] + shared);
        if (!ranks->ranks[i].name) {
            return CEN_ERR_HOST_MEMORY;
        }
        ceni_one_line(ranks->ranks[i].name);
    }
    return CEN_OK;
}

void ceni_ranks_missing(const ceni_ranks *ranks,
                        void (*missing)(void *arg, uint64_t first, uint64_t last), void *arg) {
    uint64_t next = 0, largest = ranks->ranks[ranks->count - 1].number;
    if (!ranks->numbered || largest + 1 - ranks->count >= ranks->count) {
        return;
    }
    for (size_t i = 0; i < ranks->count; i++) {
        uint64_t number = ranks->ranks[i].number;
        if (number > next) {
            missing(arg, next, number - 1);
        }
        next = number + 1;
    }
}
