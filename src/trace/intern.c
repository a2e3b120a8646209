/* Each string, frame and stack once: equal ones get the same index.
 *
 * The tables hold (hash, index) only; the elements stay in the reader's arrays, which is what the
 * snapshot takes over in the end. */
#include "trace/read.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static uint32_t mix(uint64_t hash) {
    hash *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash ^ (hash >> 32));
}

static uint32_t hash_bytes(const void *data, size_t size) {
    const uint8_t *bytes = data;
    uint64_t hash = size, word;
    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, bytes, size);
    return mix((hash ^ word) * 0x9fb21c651e98df25u);
}

static void insert(ceni_table *table, ceni_slot slot) {
    size_t at = slot.hash & (table->capacity - 1);
    while (table->slots[at].id) {
        at = (at + 1) & (table->capacity - 1);
    }
    table->slots[at] = slot;
}

/* Makes room for one more and stores it. The element with index `id` is already in its array. */
static cen_status add(ceni_reader *reader, ceni_table *table, uint32_t hash, size_t id) {
    if (id >= UINT32_MAX - 1) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "more than 2^32 different strings or stacks");
    }
    if ((table->count + 1) * 2 > table->capacity) {
        ceni_table larger = {.count = table->count};
        if (ceni_read_grow(reader, &larger.slots, &larger.capacity,
                           table->capacity ? table->capacity * 2 : 256, sizeof *larger.slots)) {
            return reader->status;
        }
        memset(larger.slots, 0, larger.capacity * sizeof *larger.slots);
        for (size_t i = 0; i < table->capacity; i++) {
            if (table->slots[i].id) {
                insert(&larger, table->slots[i]);
            }
        }
        ceni_free(table->slots);
        reader->kept -= table->capacity * sizeof *table->slots;
        *table = larger;
    }
    insert(table, (ceni_slot){.hash = hash, .id = (uint32_t)id + 1});
    table->count++;
    return CEN_OK;
}

/* True if `key` is element `id`. */
typedef bool equal_fn(const ceni_reader *reader, uint32_t id, const void *key, size_t size);

static bool find(const ceni_reader *reader, const ceni_table *table, uint32_t hash, equal_fn *equal,
                 const void *key, size_t size, uint32_t *id) {
    if (!table->capacity) {
        return false;
    }
    size_t at = hash & (table->capacity - 1);
    for (; table->slots[at].id; at = (at + 1) & (table->capacity - 1)) {
        if (table->slots[at].hash == hash && equal(reader, table->slots[at].id - 1, key, size)) {
            *id = table->slots[at].id - 1;
            return true;
        }
    }
    return false;
}

static bool equal_string(const ceni_reader *reader, uint32_t id, const void *key, size_t size) {
    return reader->strings.at[id].size == size && !memcmp(ceni_string(reader, id), key, size);
}

static bool equal_frame(const ceni_reader *reader, uint32_t id, const void *key, size_t size) {
    return !memcmp(&reader->frames.at[id], key, size);
}

static bool equal_stack(const ceni_reader *reader, uint32_t id, const void *key, size_t size) {
    ceni_span span = reader->stacks.at[id];
    return span.count == size && !memcmp(reader->stack_frames.at + span.first, key, size * 4);
}

/* Copies to reader->clean with '?' for each byte that no UTF-8 text has or that belongs to a
 * control. Python's pickles may hold such: lone surrogates, from file names that were not UTF-8. */
static cen_status make_clean(ceni_reader *reader, const uint8_t *text, size_t size) {
    reader->clean.count = 0;
    if (CENI_ROOM(reader, reader->clean, size)) {
        return reader->status;
    }
    for (size_t at = 0; at < size;) {
        size_t length = ceni_text_length(text + at, size - at);
        if (length) {
            memcpy(reader->clean.at + at, text + at, length);
        } else {
            reader->clean.at[at] = '?';
        }
        at += length ? length : 1;
    }
    return CEN_OK;
}

cen_status ceni_intern_string(ceni_reader *reader, const uint8_t *text, size_t size, uint32_t *id) {
    bool plain = true;
    for (size_t i = 0; i < size; i++) {
        plain &= (uint8_t)(text[i] - 0x20) < 0x5f;
    }
    if (!plain) {
        if (make_clean(reader, text, size)) {
            return reader->status;
        }
        text = (const uint8_t *)reader->clean.at;
    }
    uint32_t hash = hash_bytes(text, size);
    if (find(reader, &reader->string_table, hash, equal_string, text, size, id)) {
        return CEN_OK;
    }
    if (CENI_ROOM(reader, reader->text, size + 1) || CENI_ROOM(reader, reader->strings, 1) ||
        add(reader, &reader->string_table, hash, reader->strings.count)) {
        return reader->status;
    }
    char *to = reader->text.at + reader->text.count;
    memcpy(to, text, size);
    to[size] = 0;
    reader->strings.at[reader->strings.count] = (ceni_text){reader->text.count, (uint32_t)size};
    reader->text.count += size + 1;
    *id = (uint32_t)reader->strings.count++;
    return CEN_OK;
}

cen_status ceni_intern_words(ceni_reader *reader) {
    static const char *const words[] = {
#define CENI_WORD_TEXT(word) #word,
        CENI_WORD_MAP(CENI_WORD_TEXT)
#undef CENI_WORD_TEXT
    };
    for (size_t i = 0; i < CENI_WORDS; i++) {
        uint32_t id;
        if (ceni_intern_string(reader, (const uint8_t *)words[i], strlen(words[i]), &id)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

cen_status ceni_intern_frame(ceni_reader *reader, const ceni_frame_key *key, uint32_t *id) {
    uint32_t hash = hash_bytes(key, sizeof *key);
    if (find(reader, &reader->frame_table, hash, equal_frame, key, sizeof *key, id)) {
        return CEN_OK;
    }
    if (CENI_ROOM(reader, reader->frames, 1) ||
        add(reader, &reader->frame_table, hash, reader->frames.count)) {
        return reader->status;
    }
    reader->frames.at[reader->frames.count] = *key;
    *id = (uint32_t)reader->frames.count++;
    return CEN_OK;
}

cen_status ceni_intern_stack(ceni_reader *reader, const uint32_t *frames, size_t count,
                             uint32_t *id) {
    uint32_t hash = hash_bytes(frames, count * sizeof *frames);
    if (find(reader, &reader->stack_table, hash, equal_stack, frames, count, id)) {
        return CEN_OK;
    }
    if (CENI_ROOM(reader, reader->stacks, 1) || CENI_ROOM(reader, reader->stack_frames, count) ||
        add(reader, &reader->stack_table, hash, reader->stacks.count)) {
        return reader->status;
    }
    memcpy(reader->stack_frames.at + reader->stack_frames.count, frames, count * sizeof *frames);
    reader->stacks.at[reader->stacks.count] =
        (ceni_span){reader->stack_frames.count, (uint32_t)count};
    reader->stack_frames.count += count;
    *id = (uint32_t)reader->stacks.count++;
    return CEN_OK;
}
