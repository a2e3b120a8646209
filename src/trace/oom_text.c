/* The text of an out-of-memory error, as PyTorch writes it into logs, and what its numbers decide.
 *
 * Versions word it differently; each number is found by the words beside it, and those that are
 * missing are derived where the others allow it. Today's is: "Tried to allocate R. GPU n has a
 * total capacity of T of which F is free. Process p has X memory in use. Including non-PyTorch
 * memory, this process has P memory in use. C allowed; Of the allocated memory A is allocated by
 * PyTorch, with G allocated in private pools, and U is reserved by PyTorch but unallocated." Older
 * ones are: "Tried to allocate R (GPU n; T total capacity; A already allocated; F free; H reserved
 * in total by PyTorch)", and the oldest end with "U cached)". */
#include "trace/diagnose.h"

#include "base/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 8192 };

/* A plain decimal number, with a point whatever the locale. */
static double decimal(const char *text, const char **end) {
    double value = 0, place = 1;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (*text - '0');
    }
    if (*text == '.') {
        for (text++; isdigit((unsigned char)*text); text++) {
            value += (*text - '0') * (place /= 10);
        }
    }
    *end = text;
    return value;
}

/* Parses "2.93 GiB", "512 bytes" at `text`. */
static bool parse_size(const char *text, uint64_t *bytes) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"bytes", 1},    {"byte", 1},     {"B", 1},       {"KiB", 0x1p10},
                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    const char *end;
    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    double value = decimal(text, &end);
    end += *end == ' ';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t length = strlen(units[i].name);
        if (!strncmp(end, units[i].name, length) && !isalpha((unsigned char)end[length]) &&
            value * units[i].bytes < 0x1p63) {
            *bytes = (uint64_t)(value * units[i].bytes + 0.5);
            return true;
        }
    }
    return false;
}

static bool size_after(const char *message, const char *words, uint64_t *bytes) {
    const char *at = strstr(message, words);
    return at && parse_size(at + strlen(words), bytes);
}

/* The size that stands right before `words`. */
static bool size_before(const char *message, const char *words, uint64_t *bytes) {
    const char *at = strstr(message, words);
    if (!at) {
        return false;
    }
    /* Back over the unit, a space, and the number. */
    while (at > message && isalpha((unsigned char)at[-1])) {
        at--;
    }
    at -= at > message && at[-1] == ' ';
    while (at > message && (isdigit((unsigned char)at[-1]) || at[-1] == '.')) {
        at--;
    }
    return parse_size(at, bytes);
}

/* Others' lines: "Process 519 has 110.60 GiB memory in use". Keeps the largest, sums all. */
static uint64_t read_processes(const char *message, ceni_diag *diag) {
    uint64_t sum = 0;
    for (const char *at = message; (at = strstr(at, "Process ")); at += strlen("Process ")) {
        char *end;
        ceni_process found = {.pid = strtoull(at + strlen("Process "), &end, 10)};
        if (strncmp(end, " has ", 5) || !parse_size(end + 5, &found.bytes)) {
            continue;
        }
        sum += found.bytes;
        size_t place = 0;
        while (place < diag->process_count && diag->processes[place].bytes >= found.bytes) {
            place++;
        }
        if (place == CENI_PROCESSES) {
            continue;
        }
        size_t last =
            diag->process_count < CENI_PROCESSES ? diag->process_count++ : CENI_PROCESSES - 1;
        memmove(&diag->processes[place + 1], &diag->processes[place],
                (last - place) * sizeof found);
        diag->processes[place] = found;
    }
    return sum;
}

static bool read_held(const char *message, ceni_diag *diag) {
    uint64_t unallocated;
    if (!size_before(message, " is allocated by PyTorch", &diag->live) &&
        !size_before(message, " already allocated", &diag->live)) {
        return false;
    }
    diag->held = diag->live;
    if (size_before(message, " is reserved by PyTorch but unallocated", &unallocated)) {
        diag->held += unallocated;
    } else if (size_before(message, " cached)", &unallocated)) {
        diag->held += unallocated;
    } else {
        size_before(message, " reserved in total", &diag->held);
    }
    /* Printed sizes are rounded: what is reserved is never less than what is allocated. */
    diag->held = diag->held < diag->live ? diag->live : diag->held;
    return true;
}

static void read_device(const char *message, ceni_diag *diag) {
    uint64_t total = 0, mine = 0;
    const char *gpu = strstr(message, "GPU ");
    diag->device = gpu ? (int)strtol(gpu + strlen("GPU "), NULL, 10) : 0;
    /* One released version wrote "capacty". */
    if ((size_after(message, "total capacity of ", &total) ||
         size_after(message, "total capacty of ", &total) ||
         size_before(message, " total capacity", &total)) &&
        !diag->device_total) {
        diag->device_total = total;
    }
    if (!size_before(message, " is free", &diag->device_free)) {
        size_before(message, " free;", &diag->device_free);
    }
    uint64_t others = read_processes(message, diag);
    bool told = size_after(message, "this process has ", &mine);
    diag->process_other = mine > diag->held ? mine - diag->held : 0;
    uint64_t known = diag->device_free + (told ? mine : diag->held);
    diag->outside = others || !total || total < known ? others : total - known;
    if (!diag->cap_given && size_before(message, " allowed", &diag->cap_given)) {
        diag->cap_from = CENI_CAP_STATED;
    }
}

static cen_status read_message(const char *message, ceni_diag *diag) {
    if (!size_after(message, "Tried to allocate ", &diag->request) || !read_held(message, diag)) {
        return ceni_fail(CEN_ERR_FORMAT,
                         "the out-of-memory message lacks the sizes that PyTorch adds");
    }
    size_before(message, " allocated in private pools", &diag->in_pools);
    read_device(message, diag);
    diag->moment = CENI_MOMENT_FAILED;
    diag->failures = 1;
    diag->request_stack = diag->request_like = CEN_NO_STACK;
    diag->needed = diag->live + diag->request;
    diag->live_peak = diag->live;
    diag->held_peak = diag->held;
    diag->total.holes = diag->held - diag->live;
    diag->total.bytes = diag->held;
    diag->total.live = diag->live;
    return CEN_OK;
}

/* Copies the last message, from "CUDA out of memory" to its line's end; one that gives sizes before
 * one that does not, because programs repeat the error in fewer words. False: there is none. */
static bool last_message(const char *text, size_t size, char *message) {
    static const char words[] = "CUDA out of memory", full[] = ". Tried to allocate ";
    const char *found = NULL, *bare = NULL, *at = text, *stop = text + size;
    while ((at = memmem(at, (size_t)(stop - at), words, sizeof words - 1))) {
        const char *after = at + sizeof words - 1;
        bool sized =
            (size_t)(stop - after) >= sizeof full - 1 && !memcmp(after, full, sizeof full - 1);
        *(sized ? &found : &bare) = at;
        at = after;
    }
    found = found ? found : bare;
    if (!found) {
        return false;
    }
    size_t left = size - (size_t)(found - text);
    const char *end = memchr(found, '\n', left);
    size_t length = end ? (size_t)(end - found) : left;
    length = length < MAX_MESSAGE ? length : MAX_MESSAGE - 1;
    for (size_t i = 0; i < length; i++) {
        message[i] = found[i] ? found[i] : ' ';
    }
    message[length] = '\0';
    return true;
}

cen_status cen_explain_log(const char *text, size_t size, const cen_explain_options *options,
                           cen_explanation **explanation) {
    if (!text || !explanation) {
        return ceni_fail(CEN_ERR_INVALID, "cen_explain_log: %s is NULL",
                         text ? "explanation" : "text");
    }
    char message[MAX_MESSAGE];
    if (!last_message(text, size, message)) {
        return CEN_ERR_NOT_FOUND;
    }
    cen_explanation *e;
    cen_status status = ceni_explanation_new(options, 1, &e);
    if (status) {
        return status;
    }
    status = read_message(message, e->devices);
    if (status) {
        cen_explanation_free(e);
        return status;
    }
    ceni_diagnose_verdict(e->devices);
    *explanation = e;
    return CEN_OK;
}
