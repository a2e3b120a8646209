/* Ids: the numbers 1, 2, ... encrypted by XTEA, whose blocks are such numbers. So no two are the
 * same, who was told some cannot say what others are, and the state knows its own from all others
 * without a list. */
#include "ipc/state_int.h"

#define DELTA 0x9e3779b9u
enum { CYCLES = 32 };

static uint32_t mix(uint32_t v) {
    return (v << 4 ^ v >> 5) + v;
}

uint64_t ceni_id_encrypt(const uint32_t key[4], uint64_t number) {
    uint32_t a = (uint32_t)(number >> 32), b = (uint32_t)number, sum = 0;
    for (int i = 0; i < CYCLES; i++) {
        a += mix(b) ^ (sum + key[sum & 3]);
        sum += DELTA;
        b += mix(a) ^ (sum + key[sum >> 11 & 3]);
    }
    return (uint64_t)a << 32 | b;
}

uint64_t ceni_id_decrypt(const uint32_t key[4], uint64_t id) {
    uint32_t a = (uint32_t)(id >> 32), b = (uint32_t)id, sum = DELTA * CYCLES;
    for (int i = 0; i < CYCLES; i++) {
        b -= mix(a) ^ (sum + key[sum >> 11 & 3]);
        sum -= DELTA;
        a -= mix(b) ^ (sum + key[sum & 3]);
    }
    return (uint64_t)a << 32 | b;
}

uint64_t ceni_state_new_id(ceni_state *s) {
    uint64_t id;
    do { /* one that another broker gave may be known again, or awaited by a lease */
        id = s->plain_ids ? ++s->counter : ceni_id_encrypt(s->key, ++s->counter);
    } while (!id || ceni_set_find(s, id) != CENI_NONE || ceni_export_find(s, id) != CENI_NONE ||
             ceni_client_find(s, id) != CENI_NONE || ceni_pending_first(s, id) != CENI_NONE);
    return id;
}

bool ceni_state_gave_id(const ceni_state *s, uint64_t id) {
    uint64_t number = s->plain_ids ? id : ceni_id_decrypt(s->key, id);
    return number && number <= s->counter;
}
