/* Wording that text and JSON share. */
#include "trace/diagnose.h"

#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t ceni_unit(const ceni_diag *diag) {
    uint64_t bytes = diag->needed > diag->held ? diag->needed : diag->held;
    return bytes >= 1u << 30 ? 1u << 30 : 1u << 20;
}

void ceni_put_size(ceni_str *out, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    /* From 1000 on, the next unit: "0.98 GiB" rather than "1000.00 MiB". */
    while (value >= 1000 && unit < sizeof units / sizeof *units - 1) {
        value /= 1024;
        unit++;
    }
    ceni_str_printf(out, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

void ceni_put_count(ceni_str *out, uint64_t n) {
    if (n >= 1000) {
        ceni_put_count(out, n / 1000);
        ceni_str_printf(out, ",%03" PRIu64, n % 1000);
    } else {
        ceni_str_printf(out, "%" PRIu64, n);
    }
}

void ceni_put_steps(ceni_str *out, uint64_t n) {
    ceni_put_count(out, n);
    ceni_str_printf(out, n == 1 ? " step" : " steps");
}

const char *cen_verdict_name(cen_verdict verdict) {
    switch (verdict) {
#define CASE(name, value, text)                                                                    \
    case CEN_VERDICT_##name:                                                                       \
        return text;
        CEN_VERDICT_MAP(CASE)
#undef CASE
    }
    return "";
}

const char *ceni_mark_name(ceni_mark mark) {
    static const char *const names[] = {"computed", "simulated", "guess"};
    return names[mark];
}

const char *ceni_cap_name(ceni_cap_from from) {
    static const char *const names[] = {"unknown", "given", "stated", "bracketed", "device"};
    return names[from];
}

/* The optimizer's name from its file: "adam.py" -> "Adam", "sgd.py" -> "SGD". */
static void put_optimizer(ceni_str *out, const char *file) {
    const char *dot = strrchr(file, '.');
    size_t length = dot ? (size_t)(dot - file) : strlen(file);
    for (size_t i = 0; i < length; i++) {
        int c = (unsigned char)file[i];
        ceni_str_fill(out, (char)(i == 0 || length == 3 ? toupper(c) : c), 1);
    }
}

static void put_place(ceni_str *out, const cen_frame *user) {
    if (user && *user->file) {
        ceni_str_printf(out, ", %s:%" PRIu32, ceni_base_name(user->file), user->line);
    }
}

void ceni_put_label(ceni_str *out, const ceni_owner *owner) {
    static const char *const names[CENI_KINDS] = {
        [CENI_KIND_TENSORS] = "tensors",
        [CENI_KIND_ACTIVATIONS] = "activations",
        [CENI_KIND_WEIGHTS] = "weights",
        [CENI_KIND_RECOMPUTED] = "recomputed activations",
        [CENI_KIND_BACKWARD] = "backward",
        [CENI_KIND_GRAPH] = "graph capture",
        [CENI_KIND_BEFORE] = "before recording: weights, workspace (inferred)",
        [CENI_KIND_GRADIENTS] = "gradients (inferred)",
        [CENI_KIND_AUTOGRAD] = "autograd's threads (inferred)",
        [CENI_KIND_UNKNOWN] = "unknown (no frames)",
    };
    switch (owner->kind) {
    case CENI_KIND_LOSS:
        ceni_str_printf(out, "%s", owner->what);
        if (owner->largest_count > 1) {
            ceni_str_printf(out, " x%" PRIu64, owner->largest_count);
        }
        break;
    case CENI_KIND_OPTIMIZER_STATE:
    case CENI_KIND_OPTIMIZER:
        put_optimizer(out, owner->what);
        ceni_str_printf(out, owner->kind == CENI_KIND_OPTIMIZER ? " temporaries" : " state");
        break;
    default:
        ceni_str_printf(out, "%s", *owner->what ? owner->what : names[owner->kind]);
    }
    put_place(out, owner->user);
    if (owner->inferred) {
        ceni_str_printf(out, " (%" PRIu64 " by inference)", owner->inferred);
    }
}

void ceni_put_failed(ceni_str *out, const ceni_diag *diag) {
    uint32_t stack = diag->request_stack != CEN_NO_STACK ? diag->request_stack : diag->request_like;
    ceni_put_size(out, diag->request);
    if (stack == CEN_NO_STACK) {
        ceni_str_printf(out, diag->snapshot ? ", no frames recorded" : "");
        return;
    }
    ceni_owner owner = {.user = ceni_user_frame(diag->snapshot, stack)};
    owner.kind = ceni_stack_kind(diag->snapshot, stack, &owner.what);
    if (diag->request_stack != CEN_NO_STACK) {
        ceni_str_printf(out, ", ");
        ceni_put_label(out, &owner);
        return;
    }
    ceni_str_printf(out, ", backward of ");
    if (owner.kind != CENI_KIND_LOSS) {
        owner.kind = CENI_KIND_ACTIVATIONS;
    }
    ceni_put_label(out, &owner);
    ceni_str_printf(out, " (inferred)");
}

typedef struct lines {
    ceni_str text;
    void (*line)(void *arg, const char *text);
    void *arg;
} lines;

static void end_line(lines *l) {
    if (l->text.data && !l->text.failed) {
        l->line(l->arg, l->text.data);
    }
    l->text.size = 0;
}

static void sizes(lines *l, const char *const *words, const uint64_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ceni_put_size(&l->text, bytes[i]);
        ceni_str_printf(&l->text, "%s", words[i]);
    }
}

static void say_sum(lines *l, const ceni_diag *diag) {
    if (diag->moment == CENI_MOMENT_FAILED) {
        sizes(l, (const char *const[]){" live + ", " requested = ", " needed"},
              (const uint64_t[]){diag->live, diag->request, diag->needed}, 3);
    } else {
        sizes(l, (const char *const[]){diag->held_unknown ? " live" : " live, ", " held"},
              (const uint64_t[]){diag->live, diag->held}, diag->held_unknown ? 1 : 2);
    }
    if (diag->cap_low) {
        ceni_str_printf(&l->text, diag->needed > diag->cap_low ? "; over the " : "; fits the ");
        sizes(l, (const char *const[]){" cap ("}, &diag->cap_low, 1);
        ceni_str_printf(&l->text, "%s)", ceni_cap_name(diag->cap_from));
    }
    end_line(l);
}

bool ceni_put_evidence(const ceni_diag *diag, void (*line)(void *arg, const char *text),
                       void *arg) {
    lines l = {.line = line, .arg = arg};
    say_sum(&l, diag);
    if (diag->held_unknown) {
        ceni_str_printf(&l.text, "what was held is not recorded");
        end_line(&l);
    } else if (diag->moment == CENI_MOMENT_FAILED && diag->needed <= diag->cap_low) {
        sizes(&l, (const char *const[]){" held + ", " requested = ", ", over by "},
              (const uint64_t[]){diag->held, diag->request, diag->held + diag->request}, 3);
        sizes(&l, (const char *const[]){""}, &diag->over, 1);
        end_line(&l);
    }
    if (diag->outside) {
        sizes(&l, (const char *const[]){" of the device are held by others"}, &diag->outside, 1);
        end_line(&l);
    }
    for (size_t i = 0; i < diag->suspect_count; i++) {
        const ceni_suspect *s = &diag->suspects[i];
        const cen_frame *user = ceni_user_frame(diag->snapshot, s->stack);
        ceni_put_size(&l.text, (uint64_t)(s->bytes_per_step + 0.5));
        ceni_str_printf(&l.text, " a step stay, %" PRIu64 " blocks now, allocated at ", s->blocks);
        ceni_str_printf(&l.text, user ? "%s:%" PRIu32 : "no frames", user ? user->file : "",
                        user ? user->line : 0);
        end_line(&l);
    }
    if (diag->untold_growth > 0) {
        const uint64_t growth = (uint64_t)(diag->untold_growth + 0.5);
        ceni_str_printf(&l.text, "the baseline grows by ");
        sizes(&l, (const char *const[]){" a step, and no frames tell whose"}, &growth, 1);
        end_line(&l);
    }
    for (size_t i = 0; i < diag->pool_count; i++) {
        const ceni_segment_group *p = &diag->pools[i];
        ceni_str_printf(&l.text, "private pool (%" PRId64 ", %" PRId64 ") holds ", p->pool[0],
                        p->pool[1]);
        sizes(&l, (const char *const[]){", ", " of it live"}, (const uint64_t[]){p->bytes, p->live},
              2);
        end_line(&l);
    }
    if (diag->next_needed) {
        ceni_str_printf(&l.text, "if steps grow as seen, the next needs ");
        sizes(&l, (const char *const[]){""}, &diag->next_needed, 1);
        end_line(&l);
    }
    ceni_free(l.text.data);
    return !l.text.failed;
}
