/* The pickle machine: protocols 2 to 5, plain data only.
 *
 * A stack of values, a stack of marks and a memo, as in Python's unpickler; but a list or dict is
 * only a number here, and what goes into it is handed to fold.c at once. Nothing recurses, so
 * nesting costs no C stack. An opcode that would look up or call code ends the reading.
 *
 * `op` is where the current opcode begins and stays in the window: it is the place that errors
 * name. The window holds each opcode's fixed-size operand before it runs (ready()). */
#include "trace/opcode.h"
#include "trace/read.h"

#include <endian.h>
#include <string.h>

static inline uint64_t load16(const uint8_t *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return le16toh(value);
}
static inline uint64_t load32(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return le32toh(value);
}
static inline uint64_t load64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return le64toh(value);
}

static uint64_t offset_of(const ceni_reader *reader, const uint8_t *op) {
    return reader->source.base + (uint64_t)(op - reader->source.window);
}

static cen_status truncated(ceni_reader *reader) {
    return ceni_read_fail(reader, CEN_ERR_TRUNCATED, "ends before the pickle's STOP");
}

/* Bytes of the operand of fixed size that follows an opcode. */
static size_t operand_size(uint8_t op) {
    switch (op) {
    case OP_BINGET:
    case OP_BINPUT:
    case OP_BININT1:
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINBYTES:
    case OP_PROTO:
        return 1;
    case OP_BININT2:
        return 2;
    case OP_LONG_BINGET:
    case OP_LONG_BINPUT:
    case OP_BININT:
    case OP_BINUNICODE:
    case OP_BINSTRING:
    case OP_BINBYTES:
    case OP_LONG4:
        return 4;
    case OP_FRAME:
    case OP_BINFLOAT:
    case OP_BINUNICODE8:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return 8;
    default:
        return 0;
    }
}

/* Makes `count` bytes at p available, p moving with the window; NULL on failure. */
static inline const uint8_t *take(ceni_reader *reader, const uint8_t **op, const uint8_t *p,
                                  uint64_t count) {
    ceni_source *source = &reader->source;
    if (count <= (uint64_t)(source->end - p)) {
        return p;
    }
    size_t ahead = (size_t)(p - *op);
    cen_status status = ceni_source_fill(reader, *op, ahead + count);
    *op = source->window;
    p = source->window + ahead;
    if (!status && count > (uint64_t)(source->end - p)) {
        status = truncated(reader);
    }
    return status ? NULL : p;
}

/* The stack has room for one more at each opcode. */
static inline void push(ceni_reader *reader, ceni_value value) {
    reader->stack.at[reader->stack.count++] = value;
}

/* True if `count` values lie above the last mark. */
static inline bool have(ceni_reader *reader, size_t count) {
    size_t floor = reader->mark_count ? reader->marks[reader->mark_count - 1] : 0;
    if (reader->stack.count - floor >= count) {
        return true;
    }
    ceni_read_fail(reader, CEN_ERR_FORMAT, "an opcode finds too few values on the stack");
    return false;
}

static inline cen_status new_object(ceni_reader *reader, enum ceni_tag tag) {
    if (CENI_ROOM(reader, reader->objects, 1)) {
        return reader->status;
    }
    reader->objects.at[reader->objects.count] = CENI_EMPTY;
    push(reader, ceni_make(tag, reader->objects.count++));
    return CEN_OK;
}

static cen_status push_wide(ceni_reader *reader, enum ceni_tag tag, uint64_t a, uint64_t b) {
    if (CENI_ROOM(reader, reader->wide, 2)) {
        return reader->status;
    }
    push(reader, ceni_make(tag, reader->wide.count));
    reader->wide.at[reader->wide.count++] = a;
    if (tag == CENI_PAIR) {
        reader->wide.at[reader->wide.count++] = b;
    }
    return CEN_OK;
}

/* A two's complement integer of `size` bytes (8 can be read: the window is padded). Those beyond
 * 64 bits are no sizes or addresses. */
static inline cen_status push_long(ceni_reader *reader, const uint8_t *bytes, size_t size) {
    int unused = size && size < 8 ? 64 - 8 * (int)size : 0;
    int64_t value = size ? (int64_t)(load64(bytes) << unused) >> unused : 0;
    if (size <= 8 && value < INT64_C(1) << 59 && value >= -(INT64_C(1) << 59)) {
        push(reader, ceni_make(CENI_INT, (uint64_t)value));
        return CEN_OK;
    }
    if ((size == 8 && value > 0) || (size == 9 && !bytes[8])) {
        return push_wide(reader, CENI_WIDE, (uint64_t)value, 0);
    }
    push(reader, ceni_make(CENI_OTHER, 0));
    return CEN_OK;
}

/* An index lies below the number of bytes read, as it does for any pickler that counts: so the
 * memo cannot outgrow the input. */
static inline cen_status memo_put(ceni_reader *reader, size_t index, const uint8_t *op) {
    if (!have(reader, 1)) {
        return reader->status;
    }
    if (index >= reader->memo.count) {
        if (index > offset_of(reader, op)) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "memo index %zu is out of range", index);
        }
        size_t more = index + 1 - reader->memo.count;
        if (CENI_ROOM(reader, reader->memo, more)) {
            return reader->status;
        }
        memset(reader->memo.at + reader->memo.count, 0, more * sizeof *reader->memo.at);
        reader->memo.count = index + 1;
    }
    reader->memo.at[index] = reader->stack.at[reader->stack.count - 1];
    return CEN_OK;
}

static inline cen_status memo_get(ceni_reader *reader, size_t index) {
    if (index >= reader->memo.count || !reader->memo.at[index]) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "memo index %zu was never set", index);
    }
    push(reader, reader->memo.at[index]);
    return CEN_OK;
}

static cen_status push_mark(ceni_reader *reader) {
    if (reader->mark_count == CENI_READ_MARKS_MAX) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "nested deeper than %d", CENI_READ_MARKS_MAX);
    }
    reader->marks[reader->mark_count++] = reader->stack.count;
    return CEN_OK;
}

static cen_status pop_mark(ceni_reader *reader, size_t *mark) {
    if (!reader->mark_count) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "an opcode finds no mark");
    }
    *mark = reader->marks[--reader->mark_count];
    return CEN_OK;
}

/* The values from `first` go into the list or dict below them. */
static cen_status fill(ceni_reader *reader, size_t first, enum ceni_tag tag, const uint8_t *op) {
    size_t floor = reader->mark_count ? reader->marks[reader->mark_count - 1] : 0;
    size_t count = reader->stack.count - first;
    ceni_value *values = reader->stack.at + first;
    if (first <= floor || ceni_tag_of(values[-1]) != tag || (tag == CENI_DICT && count & 1)) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "items for something that is no %s",
                              tag == CENI_LIST ? "list" : "dict");
    }
    reader->stack.count = first;
    size_t object = ceni_payload(values[-1]);
    cen_status status = tag == CENI_LIST ? ceni_fold_append(reader, object, values, count)
                                         : ceni_fold_set(reader, object, values, count / 2);
    return status && reader->doubtful ? ceni_fold_doubt(reader, object, offset_of(reader, op))
                                      : status;
}

static cen_status fill_from_mark(ceni_reader *reader, enum ceni_tag tag, const uint8_t *op) {
    size_t mark = 0;
    return pop_mark(reader, &mark) ? reader->status : fill(reader, mark, tag, op);
}

static cen_status fill_last(ceni_reader *reader, size_t count, enum ceni_tag tag,
                            const uint8_t *op) {
    return have(reader, count + 1) ? fill(reader, reader->stack.count - count, tag, op)
                                   : reader->status;
}

/* LIST and DICT: the values from the mark on become a new object. */
static cen_status build(ceni_reader *reader, enum ceni_tag tag, const uint8_t *op) {
    size_t mark = 0;
    if (pop_mark(reader, &mark) || new_object(reader, tag)) {
        return reader->status;
    }
    size_t count = reader->stack.count - mark;
    ceni_value *values = reader->stack.at + mark, object = values[count - 1];
    memmove(values + 1, values, (count - 1) * sizeof *values);
    values[0] = object;
    return fill(reader, mark + 1, tag, op);
}

static cen_status build_tuple(ceni_reader *reader, size_t first) {
    size_t count = reader->stack.count - first;
    ceni_value *values = reader->stack.at + first;
    reader->stack.count = first;
    if (count == 2) {
        return push_wide(reader, CENI_PAIR, values[0], values[1]);
    }
    if (CENI_ROOM(reader, reader->stack, 1)) {
        return reader->status;
    }
    push(reader, ceni_make(CENI_OTHER, 0));
    return CEN_OK;
}

static cen_status drop_to_mark(ceni_reader *reader, bool replace) {
    size_t mark = 0;
    if (pop_mark(reader, &mark) || CENI_ROOM(reader, reader->stack, 1)) {
        return reader->status;
    }
    reader->stack.count = mark;
    if (replace) {
        push(reader, ceni_make(CENI_OTHER, 0));
    }
    return CEN_OK;
}

/* Bytes whose length stood before p: text, or bytes that nobody needs. */
static const uint8_t *op_data(ceni_reader *reader, const uint8_t **op, const uint8_t *p,
                              uint64_t size, bool text) {
    if (size > CENI_READ_STRING_MAX) {
        ceni_read_fail(reader, CEN_ERR_FORMAT, "a string of %llu bytes; the limit is 16 MiB",
                       (unsigned long long)size);
        return NULL;
    }
    uint32_t id = 0;
    if (!(p = take(reader, op, p, size)) ||
        (text && ceni_intern_string(reader, p, (size_t)size, &id))) {
        return NULL;
    }
    push(reader, text ? ceni_make(CENI_STR, id) : ceni_make(CENI_OTHER, 0));
    return p + size;
}

static const uint8_t *op_long4(ceni_reader *reader, const uint8_t **op, const uint8_t *p) {
    uint32_t size = (uint32_t)load32(p);
    if (size > CENI_READ_STRING_MAX) {
        ceni_read_fail(reader, CEN_ERR_FORMAT, "an integer of %d bytes", (int)size);
        return NULL;
    }
    p = take(reader, op, p + 4, size);
    return !p || push_long(reader, p, size) ? NULL : p + size;
}

static cen_status op_pop(ceni_reader *reader) {
    if (reader->mark_count && reader->marks[reader->mark_count - 1] == reader->stack.count) {
        reader->mark_count--; /* as Python's: POP may take a mark */
        return CEN_OK;
    }
    if (!have(reader, 1)) {
        return reader->status;
    }
    reader->stack.count--;
    return CEN_OK;
}

/* Opcodes without operands that are not frequent. */
static cen_status op_bare(ceni_reader *reader, const uint8_t **op, const uint8_t *p) {
    size_t mark = 0, tuple;
    switch (p[-1]) {
    case OP_POP:
        return op_pop(reader);
    case OP_POP_MARK:
        return drop_to_mark(reader, false);
    case OP_DUP:
        if (have(reader, 1)) {
            push(reader, reader->stack.at[reader->stack.count - 1]);
        }
        return reader->status;
    case OP_APPEND:
        return fill_last(reader, 1, CENI_LIST, *op);
    case OP_SETITEM:
        return fill_last(reader, 2, CENI_DICT, *op);
    case OP_LIST:
        return build(reader, CENI_LIST, *op);
    case OP_DICT:
        return build(reader, CENI_DICT, *op);
    case OP_TUPLE:
        return pop_mark(reader, &mark) ? reader->status : build_tuple(reader, mark);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        tuple = (size_t)(p[-1] - OP_TUPLE1) + 1;
        return have(reader, tuple) ? build_tuple(reader, reader->stack.count - tuple)
                                   : reader->status;
    case OP_EMPTY_TUPLE:
    case OP_EMPTY_SET:
        push(reader, ceni_make(CENI_OTHER, 0));
        return CEN_OK;
    case OP_ADDITEMS:
        return drop_to_mark(reader, false);
    case OP_FROZENSET:
        return drop_to_mark(reader, true);
    default:
        return ceni_pickle_refuse(reader, op, p);
    }
}

/* Opcodes with operands that are not frequent. Returns where the next opcode is, or NULL. */
static const uint8_t *op_rare(ceni_reader *reader, const uint8_t **op, const uint8_t *p) {
    uint64_t bits;
    switch (p[-1]) {
    case OP_PROTO:
        if (*p < 2 || *p > 5) {
            ceni_read_fail(reader, CEN_ERR_FORMAT, "pickle protocol %d; 2 to 5 are read", *p);
            return NULL;
        }
        return p + 1;
    case OP_BINFLOAT:
        bits = __builtin_bswap64(load64(p));
        return push_wide(reader, CENI_FLOAT, bits, 0) ? NULL : p + 8;
    case OP_LONG4:
        return op_long4(reader, op, p);
    case OP_SHORT_BINSTRING:
        return op_data(reader, op, p + 1, *p, true);
    case OP_BINSTRING:
        return op_data(reader, op, p + 4, load32(p), true);
    case OP_BINUNICODE8:
        return op_data(reader, op, p + 8, load64(p), true);
    case OP_SHORT_BINBYTES:
        return op_data(reader, op, p + 1, *p, false);
    case OP_BINBYTES:
        return op_data(reader, op, p + 4, load32(p), false);
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return op_data(reader, op, p + 8, load64(p), false);
    default:
        return op_bare(reader, op, p) ? NULL : p;
    }
}

/* One opcode other than STOP; p is after it. Returns where the next one is, or NULL. */
static inline const uint8_t *step(ceni_reader *reader, const uint8_t **op, const uint8_t *p) {
    switch (p[-1]) {
    case OP_BINGET:
        return memo_get(reader, *p) ? NULL : p + 1;
    case OP_LONG_BINGET:
        return memo_get(reader, load32(p)) ? NULL : p + 4;
    case OP_MEMOIZE:
        return memo_put(reader, reader->memo.count, *op) ? NULL : p;
    case OP_BINPUT:
        return memo_put(reader, *p, *op) ? NULL : p + 1;
    case OP_LONG_BINPUT:
        return memo_put(reader, load32(p), *op) ? NULL : p + 4;
    case OP_BININT1:
        push(reader, ceni_make(CENI_INT, *p));
        return p + 1;
    case OP_BININT2:
        push(reader, ceni_make(CENI_INT, load16(p)));
        return p + 2;
    case OP_BININT:
        push(reader, ceni_make(CENI_INT, (uint64_t)(int64_t)(int32_t)load32(p)));
        return p + 4;
    case OP_LONG1: {
        size_t size = *p;
        p = take(reader, op, p + 1, size);
        return !p || push_long(reader, p, size) ? NULL : p + size;
    }
    case OP_SHORT_BINUNICODE:
        return op_data(reader, op, p + 1, *p, true);
    case OP_BINUNICODE:
        return op_data(reader, op, p + 4, load32(p), true);
    case OP_EMPTY_DICT:
        return new_object(reader, CENI_DICT) ? NULL : p;
    case OP_EMPTY_LIST:
        return new_object(reader, CENI_LIST) ? NULL : p;
    case OP_MARK:
        return push_mark(reader) ? NULL : p;
    case OP_SETITEMS:
        return fill_from_mark(reader, CENI_DICT, *op) ? NULL : p;
    case OP_APPENDS:
        return fill_from_mark(reader, CENI_LIST, *op) ? NULL : p;
    case OP_NONE:
        push(reader, ceni_make(CENI_NONE, 0));
        return p;
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        push(reader, ceni_make(CENI_BOOL, p[-1] == OP_NEWTRUE));
        return p;
    case OP_FRAME:
        return p + 8;
    default:
        return op_rare(reader, op, p);
    }
}

/* Makes the opcode at p and its operand available, p moving with the window. */
static const uint8_t *ready(ceni_reader *reader, const uint8_t *p) {
    ceni_source *source = &reader->source;
    if (ceni_source_fill(reader, p, 16)) {
        return NULL;
    }
    size_t left = (size_t)(source->end - source->window);
    if (!left || left < 1 + operand_size(source->window[0])) {
        truncated(reader);
        return NULL;
    }
    return source->window;
}

/* Says where the failure is. */
static cen_status fail_at(ceni_reader *reader, const uint8_t *op) {
    reader->offset = offset_of(reader, op);
    reader->at_offset = true;
    return reader->status;
}

cen_status ceni_pickle_run(ceni_reader *reader, ceni_value *result) {
    ceni_source *source = &reader->source;
    const uint8_t *p = source->window, *op = p;
    if (p == source->end || *p != OP_PROTO) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "not a recording but %s; expected a PyTorch snapshot, a cenote trace "
                              "or an RMM log",
                              ceni_source_looks(p, (size_t)(source->end - p)));
    }
    do {
        if (source->end - p < 16 && !(p = ready(reader, p))) {
            return fail_at(reader, source->window);
        }
        op = p++;
        if (*op == OP_STOP) {
            break;
        }
        if (CENI_ROOM(reader, reader->stack, 2)) {
            return fail_at(reader, op);
        }
        p = step(reader, &op, p);
    } while (p);
    if (!p || !have(reader, 1)) {
        return fail_at(reader, op);
    }
    *result = reader->stack.at[reader->stack.count - 1];
    return ceni_source_drain(reader);
}
