#include "trace/pickler.h"

#include "base/mem.h"

#include <string.h>

void ceni_pickler_free(ceni_pickler *p) {
    ceni_map_free(&p->texts);
    ceni_free(p->text_memo);
}

/* An opcode and its operand, least significant byte first. */
static void put(ceni_pickler *p, uint8_t op, uint64_t operand, size_t size) {
    uint8_t bytes[9] = {op};
    for (size_t i = 0; i < size; i++) {
        bytes[1 + i] = (uint8_t)(operand >> 8 * i);
    }
    ceni_out_put(p->out, bytes, 1 + size);
}

void ceni_pickle_op(ceni_pickler *p, uint8_t op) {
    ceni_out_put(p->out, &op, 1);
}

/* A long integer of `size` bytes. */
static void put_long(ceni_pickler *p, uint64_t value, size_t size) {
    uint8_t bytes[11] = {OP_LONG1, (uint8_t)size};
    for (size_t i = 0; i < 8; i++) {
        bytes[2 + i] = (uint8_t)(value >> 8 * i);
    }
    ceni_out_put(p->out, bytes, 2 + size); /* the ninth: a sign, 0 */
}

void ceni_pickle_int(ceni_pickler *p, int64_t value) {
    if (value >= 0 && value <= UINT8_MAX) {
        put(p, OP_BININT1, (uint64_t)value, 1);
    } else if (value >= 0 && value <= UINT16_MAX) {
        put(p, OP_BININT2, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put(p, OP_BININT, (uint64_t)value, 4);
    } else {
        size_t size = 5;
        while (size < 8 && value >> (8 * size - 1) != 0 && value >> (8 * size - 1) != -1) {
            size++;
        }
        put_long(p, (uint64_t)value, size);
    }
}

void ceni_pickle_unsigned(ceni_pickler *p, uint64_t value) {
    if (value <= INT64_MAX) {
        ceni_pickle_int(p, (int64_t)value);
    } else {
        put_long(p, value, 9);
    }
}

void ceni_pickle_float(ceni_pickler *p, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(p, OP_BINFLOAT, __builtin_bswap64(bits), sizeof bits);
}

void ceni_pickle_bool(ceni_pickler *p, bool value) {
    ceni_pickle_op(p, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void ceni_pickle_string(ceni_pickler *p, const char *text, size_t size) {
    if (size <= UINT8_MAX) {
        put(p, OP_SHORT_BINUNICODE, size, 1);
    } else {
        put(p, OP_BINUNICODE, size, 4);
    }
    ceni_out_put(p->out, text, size);
}

uint32_t ceni_pickle_number(ceni_pickler *p, const char *text) {
    uint64_t *found = ceni_map_get(&p->texts, (uintptr_t)text);
    if (found) {
        return (uint32_t)*found;
    }
    size_t number = p->text_count;
    if (ceni_grow(&p->text_memo, &p->text_capacity, number + 1, sizeof *p->text_memo) ||
        ceni_map_put(&p->texts, (uintptr_t)text, number)) {
        ceni_out_fail(p->out, CEN_ERR_HOST_MEMORY, "no memory for its strings");
        return 0;
    }
    p->text_memo[number] = 0;
    p->text_count++;
    return (uint32_t)number;
}

void ceni_pickle_text(ceni_pickler *p, const char *text) {
    uint32_t number = ceni_pickle_number(p, text);
    if (p->out->status) {
        return;
    }
    if (p->text_memo[number]) {
        ceni_pickle_get(p, p->text_memo[number] - 1);
    } else {
        ceni_pickle_string(p, text, strlen(text));
        p->text_memo[number] = ceni_pickle_memoize(p) + 1;
    }
}

uint32_t ceni_pickle_memoize(ceni_pickler *p) {
    ceni_pickle_op(p, OP_MEMOIZE);
    return p->memos++;
}

void ceni_pickle_get(ceni_pickler *p, uint32_t memo) {
    if (memo <= UINT8_MAX) {
        put(p, OP_BINGET, memo, 1);
    } else {
        put(p, OP_LONG_BINGET, memo, 4);
    }
}
