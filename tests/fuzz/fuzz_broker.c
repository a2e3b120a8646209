/* Property: no sequence of messages, ends of connections and deaths breaks an invariant of the
 * broker's state, has a malformed answer, or closes a descriptor twice or never.
 * The input is steps: what (with 8, and the distance in the upper half: another actor is deaf),
 * actor, an argument, a length of two bytes, and that many bytes of a message without its head but
 * for its type. Ids count from 1. Seeds: tests/fuzz/corpus/broker. */
#include "tests/unit/ipc/world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 400, HEADER = 5 };
enum step_kind { HELLO, HANGUP, DEAD, TICK, CHECK, MESSAGE };

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

/* A message around a body; the first byte is its type. */
static void build(ceni_wire_builder *b, const uint8_t *data, size_t size) {
    (void)ceni_wire_begin(b, (enum ceni_wire_type)(size ? data[0] : 0), 1, 0);
    ceni_wire_add(b, data + 1, size > 1 ? size - 1 : 0);
}

static void check_alone(const uint8_t *data, size_t size, unsigned fds) {
    static uint64_t copy[CENI_WIRE_MAX / 8];
    ceni_wire_message m;
    memcpy(copy, data, size);
    for (int side = CENI_WIRE_REQUEST; side <= CENI_WIRE_NOTIFY; side++) {
        (void)ceni_wire_check(copy, size, fds, (enum ceni_wire_side)side, &m);
    }
}

/* Sends a message, while another client, if any, takes no notice and then is cut off. */
static void send_past(world *w, unsigned i, actor *deaf, const ceni_wire_builder *b, unsigned fds) {
    if (deaf) {
        deaf->deaf = true;
    }
    (void)world_send(w, i, b, fds);
    if (deaf) {
        world_hangup(w, (unsigned)(deaf - w->actors));
    }
}

static void step(world *w, const uint8_t *head, const uint8_t *data, size_t size) {
    static ceni_wire_builder b;
    unsigned i = head[1] % WORLD_ACTORS;
    actor *a = &w->actors[i];
    switch (head[0] % 8) {
    case HELLO:
        if (!a->connected) {
            /* One process is one user, whatever it calls itself. */
            (void)world_hello(w, i, i % 4 ? 500 + i % 4 : 0, head[2] & 1);
        }
        break;
    case HANGUP:
        if (a->connected) {
            world_hangup(w, i);
        }
        break;
    case DEAD:
        if (a->there) {
            world_dead(w, i);
        }
        break;
    case TICK:
        w->now += head[2];
        ceni_state_now(w->state, w->now);
        ceni_state_tick(w->state);
        break;
    case CHECK:
        check_alone(data, size, head[2]);
        break;
    default:
        build(&b, data, size);
        if (a->connected && !b.overflow) {
            w->refused_fd = head[2] & 128 ? w->next_fd : -1;
            actor *deaf = &w->actors[(i + (head[0] >> 4)) % WORLD_ACTORS];
            deaf = head[0] & 8 && deaf->connected ? deaf : NULL;
            send_past(w, i, deaf, &b, head[2] % (CENI_WIRE_FDS + 1));
        }
    }
}

static void end(world *w) {
    for (unsigned i = 0; i < WORLD_ACTORS; i++) {
        if (w->actors[i].there) {
            world_dead(w, i);
        }
    }
    require(!ceni_state_verify(w->state));
    ceni_state_counts c = ceni_state_count(w->state);
    require(!c.leases && !c.clients);
    require(world_free(w));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    world *w = world_new(0);
    w->quota = 5000;
    for (unsigned steps = 0; size >= HEADER && steps < STEPS_MAX; steps++) {
        size_t length = (size_t)data[3] | (size_t)data[4] << 8;
        length = length < size - HEADER ? length : size - HEADER;
        length = length < CENI_WIRE_MAX ? length : CENI_WIRE_MAX;
        step(w, data, data + HEADER, length);
        require(!ceni_state_verify(w->state) && !w->broken);
        data += HEADER + length;
        size -= HEADER + length;
    }
    end(w);
    return 0;
}
